"""A plan's outcome: measures in windows of time; and the probe, which tests plans in windows of random order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.outcome.measures import PINGS_OF_P99
from pinner.model.plan.objective import Term

Arm = str
"""The placement during a window: as the probe found it (current), or as a plan wants it: planned for the only plan of a
probe; of several plans the strategy, or the id where two plans have the same strategy."""

CURRENT, PLANNED = "current", "planned"

Judgement = Literal["better", "worse", "no matter", "inconclusive"]
"""better, worse: chance does not explain the difference, and it may matter. no matter: it lies inside the margin.
inconclusive: the windows do not allow an answer."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured in each window."""

    name: str
    """Its name, such as ``run_delay``."""
    unit: str
    """The unit of a window's value, such as ``ms/s``."""
    margin: float
    """A smaller difference of the means matters to nobody; in the unit."""
    better: Literal["lower", "higher"] = "lower"
    """The direction of a better value."""
    margin_share: float = 0.0
    """A difference below this share of the present mean, or of the larger one of two, matters to nobody, either."""
    reach_seconds: int = 0
    """How far a value looks back beyond its step."""

    @property
    def sign(self) -> int:
        """Of a change for the worse."""
        return 1 if self.better == "lower" else -1

    def margin_beside(self, *means: float) -> float:
        return max(self.margin, *(self.margin_share * abs(mean) for mean in means))


CORE = (
    Measure("run_delay", "ms/s", 5.0),
    Measure("drops", "packets/s", 1.0),
    Measure("softnet_drops", "packets/s", 1.0),
    Measure("pressure", "ms/s", 20.0),
)
"""run_delay: all threads of the guests waited. drops: of their taps. softnet_drops and pressure: the host's."""

TRAFFIC = (
    Measure("loss", "%", 0.1),
    Measure("packets_in", "packets/s", 100.0, "higher", 0.02),
    Measure("packets_out", "packets/s", 100.0, "higher", 0.02),
    Measure("bits_in", "bits/s", 1e6, "higher", 0.02),
    Measure("bits_out", "bits/s", 1e6, "higher", 0.02),
)
"""Of the taps of the guests, all together."""

CARRIED = {"packets_in": "bits_in", "packets_out": "bits_out"}
"""Fewer packets that carry as many bits of each guest are no loss: segments are merged before they reach the tap. The
sum of the bits does not show the small packets of one guest beside the large ones of another."""

PINGS = (
    Measure("ping", "ms", 1.0),
    Measure("ping_loss", "%", 1.0),
    Measure("ping_p99", "ms", 2.0, reach_seconds=PINGS_OF_P99),
    Measure("ping_worst", "ms", 2.0),
)
"""The mean of the guests that answer. They never make a step or window unknown: a guest may filter pings."""

MEASURES = (*CORE, *TRAFFIC, *PINGS)


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time with one placement."""

    arm: Arm
    """The placement during it."""
    values: Mapping[str, float]
    """Each measure's value by name, of the guests whose placement the plan changes."""
    control: Mapping[str, float] = field(default_factory=dict)
    """The same of the guests that the plan does not touch. Empty: there are none."""
    void: str = ""
    """Why it does not count, as "guest web-1 migrated"; empty: it counts."""
    bits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """``bits_in`` and ``bits_out`` of each of these guests, by UUID."""


@dataclass(frozen=True, slots=True)
class MeasureOutcome:
    """A measure with the current and the planned placement, and what the difference means."""

    measure: Measure
    current: float
    """Mean of the windows with the current placement, or the first one of a pair."""
    planned: float
    """Mean of the windows with the planned placement, or the second one of a pair."""
    effect: float
    """Estimated difference, planned minus current, in the unit (Hodges and Lehmann)."""
    low: float | None
    """Lower end of the effect's 95 % interval; null: the windows do not bound it."""
    high: float | None
    """Upper end of the effect's 95 % interval; null: the windows do not bound it."""
    p: float
    """p-value of the two-sided test, after Holm's correction for the number of measures."""
    judgement: Judgement
    """The test's answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a probe shows."""

    judgement: Judgement
    """worse if one measure is worse; else better if one is better; no matter if no measure matters."""
    measures: tuple[MeasureOutcome, ...]
    """The judgement of each measure."""
    windows: int
    """The number of windows that count."""
    void: tuple[str, ...]
    """Why other windows do not count."""
    missing: int
    """Estimated windows with each placement that an answer lacks; 0 unless inconclusive."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two placements of a tournament."""

    first: Arm
    """The first placement."""
    second: Arm
    """The second placement."""
    outcome: Outcome
    """The second placement compared with the first; its p-values are corrected for all measures of all pairs."""

    @property
    def better(self) -> Arm:
        """The one that is better in some measure and worse in none; empty: neither is."""
        judgements = {result.judgement for result in self.outcome.measures}
        if ("better" in judgements) == ("worse" in judgements):
            return ""
        return self.second if "better" in judgements else self.first


@dataclass(frozen=True, slots=True)
class Place:
    """A placement in the ranking of a tournament."""

    rank: int
    """1 plus the number of placements that are better."""
    arm: Arm
    """The placement."""
    better_than: tuple[Arm, ...]
    """The placements that are worse."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a tournament shows."""

    places: tuple[Place, ...]
    """The placements, best first."""
    pairs: tuple[Pair, ...]
    """The comparison of each two placements."""
    winner: Arm
    """The first one that is better than the current placement; empty: there is none."""
    windows: int
    """The number of windows that count."""
    void: tuple[str, ...]
    """Why other windows do not count."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A step of the history."""

    at: datetime
    """Its end."""
    values: Mapping[str, float]
    """By measure, of the guests in question; only what is known."""
    control: Mapping[str, float]
    """The same of other guests."""
    bits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """``bits_in`` and ``bits_out`` of each of the guests in question, by UUID."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one measure differs after a run; means in the unit."""

    before: float
    """Mean of the steps before."""
    after: float
    """Mean of the steps after."""
    difference: float
    """Median of the differences between a step after the run and one before it. Below 0: less than before."""
    higher: float
    """Share of such pairs in which the later step is higher: 0.5 is no difference."""


@dataclass(frozen=True, slots=True)
class ObservedMeasure:
    """One measure before and after a run. Nobody knows what it would have been without the run."""

    measure: Measure
    steps_before: int
    """Number of known steps before the run."""
    steps_after: int
    """Number of known steps after the run."""
    guests: Comparison | None
    """Those that the run changed, or the host; null where one side is not known."""
    control: Comparison | None
    """The other guests; null: there are none, or it is not known."""


WatchState = Literal["watching", "not_worse", "worse", "stopped"]
"""watching: the time is not over, or the run is worse and not undone yet. not_worse: the time is over, and no measure
became worse for certain. stopped: it ended without an answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Watch:
    """See pinner.outcome.watch."""

    state: WatchState
    """The state."""
    at: datetime
    why: str
    """The state in words."""
    rollback: str = ""
    """The run that undid the watched one; else empty."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Measures before and after a run. They are observed and not tested: time itself may be the cause."""

    run: str
    label: Literal["observed, not tested"]
    expected: tuple[Term, ...]
    """Terms of the objective that the plan changes; none for a rollback."""
    guests: tuple[str, ...]
    """Names of those that the run changed; if it changed none, of all."""
    control: tuple[str, ...]
    """Names of the others, which show what changed by itself."""
    begin: datetime
    """Begin of the measures before the run."""
    end: datetime
    """End of the measures after the run."""
    step: int
    measures: tuple[ObservedMeasure, ...]
    """The measures."""
    notes: tuple[str, ...]
    """What is not known, and why."""
    is_final: bool
    """Whether the measures after the run are complete: the outcome is stored, and stays."""
    watch: Watch | None = None
    """Null: the run is not watched."""


ProbeState = Literal["running", "ended", "cancelled", "failed", "interrupted"]
"""running      the probe has not ended
ended        all windows are over, and the probe has an outcome or a ranking
cancelled    somebody ended the probe before its time
failed       a change of the placement failed
interrupted  the server ended before the probe"""

MIN_WINDOWS, DEFAULT_WINDOWS, MAX_WINDOWS = 2, 8, 50
"""Windows of each placement. Nine measures need six at least."""

MAX_PLANS, TOURNAMENT_WINDOWS = 5, 12
"""The most plans of a tournament, and the windows of each placement that they need for thirteen measures."""

BLOCK = 2
"""Windows of each placement in a block of a tournament. Only windows of one block are compared, so that a slow change
of the load is no difference. Blocks of one would need more windows: they have fewer orders."""

MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 15, 20, 600
"""The length of a window."""

WASH_OUT_SECONDS = 15
"""Not counted before each window: a count spreads over the steps that it touches, and guests must settle."""

PROBE_ID = "probe-"

PROBE_ORIGIN = "the probe "
"""Begins the origin of a probe's runs."""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    windows: int
    """The number of windows of each placement."""
    seconds: int
    """The length of a window in seconds."""
    rivals: tuple[str, ...] = ()
    """Ids of other plans of the host: the probe ranks all plans and the present placement, so it is a tournament."""
    keep: bool = False
    """At the end, place the winner, if a plan is better than the present placement."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A test of a plan on its host; of several plans it is a tournament."""

    id: str
    host: str
    plans: tuple[str, ...]
    """Ids of the plans."""
    arms: tuple[Arm, ...]
    """The current placement, then that of each plan."""
    actor: str
    origin: str
    state: ProbeState
    """The state."""
    started_at: datetime
    order: tuple[Arm, ...]
    """Each window's placement, as drawn."""
    seconds: int
    """Length of a window in seconds."""
    guests: tuple[str, ...]
    """Names of those that the plans change; empty: a plan changes none, and all guests are measured."""
    keep: bool = False
    """Whether the host gets the placement that wins, if one does."""
    windows: tuple[Window, ...] = ()
    """Those that are over, in order."""
    ended_at: datetime | None = None
    why: str = ""
    """Why there is no outcome, or why the winner is not kept; else empty."""
    outcome: Outcome | None = None
    """The test's result; null unless the state is ended, and in a tournament."""
    ranking: Ranking | None = None
    """The result of a tournament; null unless the state is ended."""
    left: str = ""
    """The run that the probe could not roll back, so that the host keeps the planned placement; else empty."""
    kept: str = ""
    """The run that placed the winner after the last window; else empty."""

    @property
    def is_tournament(self) -> bool:
        return len(self.plans) > 1

    @property
    def winner(self) -> Arm:
        """Empty: no placement is better than the current one."""
        if self.ranking:
            return self.ranking.winner
        return PLANNED if self.outcome and self.outcome.judgement == "better" else ""

    @property
    def result(self) -> str:
        """In a few words; empty: there is none."""
        if self.ranking:
            return f"{self.winner} wins" if self.winner else "no placement is better than the current one"
        return self.outcome.judgement if self.outcome else ""

    @property
    def plan_of(self) -> dict[Arm, str]:
        return dict(zip(self.arms[1:], self.plans, strict=True))

    @property
    def total_seconds(self) -> int:
        return len(self.order) * (self.seconds + WASH_OUT_SECONDS) + WASH_OUT_SECONDS

    @property
    def mark(self) -> str:
        return f"{PROBE_ORIGIN}{self.id}"

    @property
    def winner_mark(self) -> str:
        """The origin of the run that places the winner. Unlike the others, it counts as a placement."""
        return f"the winner of {self.id}"
