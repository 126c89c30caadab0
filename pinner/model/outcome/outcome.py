"""The outcome of a plan: measures in windows of time; and the probe, which tests a plan in windows of random order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.plan.objective import Term

Arm = Literal["current", "planned"]
"""The placement during a window: as the probe found it, or as the plan wants it."""

Judgement = Literal["better", "worse", "no matter", "inconclusive"]
"""better, worse: chance does not explain the difference, and it may matter. no matter: it lies inside the margin.
inconclusive: the windows do not allow an answer."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that is measured in each window. A higher value is always worse."""

    name: str
    """Its name, as in ``run_delay``."""
    unit: str
    """The unit of a window's value, as in ``ms/s``."""
    margin: float
    """A difference of the means below this matters to nobody, in the unit."""


PINGS = (Measure("ping", "ms", 1.0), Measure("ping_loss", "%", 1.0))
"""They never make a step or window unknown: a guest may filter pings."""

MEASURES = (
    Measure("run_delay", "ms/s", 5.0),
    Measure("drops", "packets/s", 1.0),
    Measure("softnet_drops", "packets/s", 1.0),
    Measure("pressure", "ms/s", 20.0),
    *PINGS,
)
"""run_delay: all threads of the guests waited for a CPU. drops: of the guests' taps. softnet_drops and pressure: the
host's. ping and ping_loss: the mean of the guests that answer."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time with one placement, and one number for each measure."""

    arm: Arm
    """The placement during the window."""
    values: Mapping[str, float]
    """The value of each measure, by name: of the guests whose placement the plan changes."""
    control: Mapping[str, float] = field(default_factory=dict)
    """The value of each measure, by name: of the guests that the plan does not touch. Empty: there are none."""
    void: str = ""
    """Why the window does not count, as "guest web-1 migrated"; empty if it counts."""


@dataclass(frozen=True, slots=True)
class MeasureOutcome:
    """The result of the test for one measure."""

    measure: Measure
    """The measure."""
    current: float
    """The mean of the windows with the current placement, in the unit."""
    planned: float
    """The mean of the windows with the planned placement, in the unit."""
    effect: float
    """The estimated difference, planned minus current, in the unit (Hodges and Lehmann). Below 0 is better."""
    low: float | None
    """The lower end of the effect's 95 % interval; null: the windows do not bound it."""
    high: float | None
    """The upper end of the effect's 95 % interval; null: the windows do not bound it."""
    p: float
    """The p-value of the two-sided test, after Holm's correction for the number of measures."""
    judgement: Judgement
    """What the test says of this measure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict of a test over all measures."""

    judgement: Judgement
    """worse if one measure is worse; else better if one is better; no matter if no measure matters."""
    measures: tuple[MeasureOutcome, ...]
    """The result of each measure."""
    windows: int
    """The number of windows that count."""
    void: tuple[str, ...]
    """Why other windows do not count."""
    missing: int
    """Estimated number of windows with each placement that are missing for an answer; 0 unless inconclusive."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One step of the history."""

    at: datetime
    """Its end."""
    values: Mapping[str, float]
    """By measure, of the guests in question; without what is not known."""
    control: Mapping[str, float]
    """The same of the guests beside them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of one measure after a run from before it."""

    before: float
    """The mean of the steps before the run, in the unit."""
    after: float
    """The mean of the steps after the run, in the unit."""
    difference: float
    """The median of the differences between a step after the run and a step before it. Below 0: less than before."""
    higher: float
    """The share of such pairs in which the step after the run has the higher value: 0.5 is no difference."""


@dataclass(frozen=True, slots=True)
class ObservedMeasure:
    """One measure before and after a run. Nobody knows what it would have been without the run."""

    measure: Measure
    """The measure."""
    steps_before: int
    """The number of steps before the run that are known."""
    steps_after: int
    """The number of steps after the run that are known."""
    guests: Comparison | None
    """The difference for the guests that the run changed, or for the host; null where one side is not known."""
    control: Comparison | None
    """The difference for the guests that the run did not change; null where there are none, or it is not known."""


WatchState = Literal["watching", "not_worse", "worse", "stopped"]
"""watching: the time is not over, or the run is worse and not undone yet. not_worse: the time is over, and no measure
became worse for certain. stopped: it ended without an answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The watch of a run after its end: see pinner.outcome.watch."""

    state: WatchState
    """How far the watch is."""
    at: datetime
    """The time of the state."""
    why: str
    """The state in words."""
    rollback: str = ""
    """The run that undid the watched run; empty if there is none."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What was measured before and after a run. It is observed and not tested: time itself may be the cause."""

    run: str
    """The id of the run."""
    label: Literal["observed, not tested"]
    """The kind of evidence."""
    expected: tuple[Term, ...]
    """The terms of the plan's objective that the plan changes; none for a rollback."""
    guests: tuple[str, ...]
    """The names of the guests that the run changed; if it changed none, of all guests."""
    control: tuple[str, ...]
    """The names of the other guests. They show what changed by itself."""
    begin: datetime
    """The begin of the measures before the run."""
    end: datetime
    """The end of the measures after the run."""
    step: int
    """The seconds of a step."""
    measures: tuple[ObservedMeasure, ...]
    """The measures."""
    notes: tuple[str, ...]
    """What is not known, and why."""
    is_final: bool
    """Whether the measures after the run are complete. Then the outcome is stored, and stays."""
    watch: Watch | None = None
    """The watch of the run; null if it is not watched."""


ProbeState = Literal["running", "ended", "cancelled", "failed", "interrupted"]
"""running      the probe has not ended
ended        all windows are over, and the probe has an outcome
cancelled    somebody ended the probe before its time
failed       a change of the placement failed
interrupted  the server ended before the probe"""

MIN_WINDOWS, DEFAULT_WINDOWS, MAX_WINDOWS = 2, 8, 50
"""Windows of each placement. Four measures need five at least."""

MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 15, 20, 600
"""The length of a window."""

WASH_OUT_SECONDS = 15
"""They do not count, before each window: a count is spread over the steps that it touches, and guests need a moment to
run as placed."""

PROBE_ID = "probe-"

PROBE_ORIGIN = "the probe "
"""Begins the origin of each run that a probe starts."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A test of a plan on its host, from its start to its end."""

    id: str
    """The id of the probe."""
    host: str
    """The name of the host."""
    plan: str
    """The id of the plan."""
    actor: str
    """The user who started the probe."""
    origin: str
    """Where the call came from: an address, or the CLI's terminal."""
    state: ProbeState
    """The state of the probe."""
    started_at: datetime
    """The time of the start."""
    order: tuple[Arm, ...]
    """The placement of each window, in the order that was drawn."""
    seconds: int
    """The length of a window in seconds."""
    guests: tuple[str, ...]
    """The names of the guests that the plan changes; empty: it changes none, and all guests are measured."""
    windows: tuple[Window, ...] = ()
    """The windows that are over, in their order."""
    ended_at: datetime | None = None
    """The time of the end; null while the probe is running."""
    why: str = ""
    """Why the probe has no outcome; else empty."""
    outcome: Outcome | None = None
    """The result of the test; null unless the state is ended."""
    left: str = ""
    """The run that the probe could not roll back, so that the host still has the planned placement; else empty."""

    @property
    def total_seconds(self) -> int:
        """Without the time of its runs."""
        return len(self.order) * (self.seconds + WASH_OUT_SECONDS) + WASH_OUT_SECONDS

    @property
    def mark(self) -> str:
        return f"{PROBE_ORIGIN}{self.id}"
