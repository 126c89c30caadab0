"""The kept measures of hosts, those before and after a run, and how many a watch needs; who delays a guest now."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pinner.agent.protocol import Agent
from pinner.model.change import guests_of
from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.blame import MAX_SECONDS, Blame
from pinner.model.outcome.measures import (
    GUEST_SERIES,
    HOST,
    MAX_VALUES,
    ROWS,
    History,
    Measures,
    Span,
    finest,
    require_series,
    series_of,
)
from pinner.model.outcome.outcome import ObservedMeasure, Sample
from pinner.model.page import PageRequest
from pinner.model.run.audit import POLICY_ACTOR
from pinner.model.run.journal import Run
from pinner.outcome.samples import JUDGED, between, samples
from pinner.outcome.watch import least_steps
from pinner.service.hosts.hosts import Hosts
from pinner.service.runs.runs import RunManager

STEP = min(ROWS)
"""The step of the history that a watch reads, in seconds."""

LATE = timedelta(seconds=3 * STEP)
"""The steps up to a moment are complete so much later: the next count completes a step."""

LEEWAY = timedelta(minutes=5)
"""If the run and a late look together take no longer, no measures before the run are lost."""

_KEPT = timedelta(seconds=STEP * ROWS[STEP])
"""The history has such steps for an hour."""


def watched_span(watch_seconds: int) -> timedelta:
    return timedelta(seconds=watch_seconds) + LATE


def known_span(watch_seconds: int) -> timedelta:
    """The time before the run whose steps are compared. The history must have it until the last look: lost first steps
    would move the mark, and make a false stop more likely."""
    return _KEPT - watched_span(watch_seconds) - LEEWAY


def known_span_now(watch_seconds: int, since: timedelta) -> timedelta:
    """What the history still has of ``known_span`` after ``since``, less a step for the clock."""
    return min(known_span(watch_seconds), _KEPT - since - timedelta(seconds=STEP))


def needed_steps(watch_seconds: int) -> int:
    """Steps of a measure before the run. The first step after the run does not count."""
    return least_steps(int(watched_span(watch_seconds).total_seconds()) // STEP - 1)


SPAN = timedelta(minutes=5)
"""The time of the measures before a run, and of those after it."""

_NEIGHBOURS = 50

_DISTURBING = ("guest-reset", "guest-paused", "guest-stopped", "guest-started")
"""After these events a guest's measures cannot be compared with earlier ones."""


@dataclass(frozen=True, slots=True)
class RunSamples:
    guests: dict[str, str]
    """The guests that the run changed: UUID to name."""
    control: tuple[str, ...]
    begin: datetime
    end: datetime
    step: int
    before: tuple[Sample, ...]
    after: tuple[Sample, ...]
    why: str
    """Why samples are missing or end too early."""

    def notes(self, measures: Iterable[ObservedMeasure], *, is_final: bool) -> Iterator[str]:
        if self.why:
            yield self.why
        if not is_final:
            yield "the measures after the run are not complete yet"
        for side, steps in (("before", self.before), ("after", self.after)):
            if not steps:
                yield f"the history has no whole steps of {self.step} s {side} the run"
        if unknown := [measure.measure.name for measure in measures if measure.guests is None]:
            yield f"not known on both sides of the run: {', '.join(unknown)}"


@dataclass(frozen=True, slots=True)
class _Disturbance:
    at: datetime
    is_later: bool
    what: str
    run: str = ""
    """The run that disturbed; empty: a guest's event did."""


@dataclass(frozen=True, slots=True)
class _Reading:
    run: Run
    first: datetime
    ended: datetime
    end: datetime
    step: int
    guests: dict[str, str]
    disturbances: tuple[_Disturbance, ...]
    histories: tuple[History, ...]
    missing: str

    def samples(self, through: Collection[str] = ()) -> RunSamples:
        """The samples up to a disturbance by something other than the runs ``through``."""
        begin, end, why = self.first, self.end, ""
        for disturbance in self.disturbances:
            if disturbance.run in through:
                continue
            if disturbance.is_later and disturbance.at < end:
                end, why = max(self.ended, disturbance.at), disturbance.what
            elif not disturbance.is_later and begin < disturbance.at <= self.run.started_at:
                begin = disturbance.at
        if self.missing:
            return RunSamples(self.guests, (), begin, end, self.step, (), (), self.missing)
        known = {history.subject: history.name for history in self.histories if history.subject != HOST}
        guests = self.guests or known
        # A count is spread over the steps that it touches: the steps beside the run have a part of the run in them.
        wash = timedelta(seconds=self.step)
        steps = samples(self.histories, guests, self.step)
        return RunSamples(
            guests,
            tuple(sorted(name for uuid, name in known.items() if uuid not in guests and name)),
            begin,
            end,
            self.step,
            between(steps, begin, self.run.started_at - wash, self.step),
            between(steps, self.ended + wash, end, self.step),
            why,
        )


class RunSampleReader:
    def __init__(self, hosts: Hosts, runs: RunManager, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._runs = runs
        self._now = now

    def observed(self, run: Run) -> RunSamples:
        return self._read(run, SPAN, SPAN, self._guests(run), self.latest(run.host)).samples()

    def before(self, host: str, guests: dict[str, str], watch_seconds: int) -> tuple[Sample, ...]:
        """What a watch of a run that began now and changed ``guests`` (UUID to name) would have of the time before
        it."""
        now = self._now()
        run = Run("", "apply", host, "", "", "", "running", now, ended_at=now)
        return self._read(run, known_span(watch_seconds), timedelta(0), guests, self.latest(host)).samples().before

    def watched(self, run: Run, span: timedelta) -> RunSamples:
        """The samples by which the watch of a run judges it, ``span`` long after it. A policy's watch goes on through
        the policy's next runs, or there would be no time to find one worse, and through another guest's release. The
        samples before are those since the policy's last run, if they are enough."""
        guests, latest = self._guests(run), self.latest(run.host)
        before = max(SPAN, known_span_now(run.watch_seconds, self._now() - run.started_at))
        reading, through = self._read(run, before, span, guests, latest), self._runs_through(run, guests, latest)
        since_last_run = reading.samples({other.id for other in through if other.started_at >= run.started_at})
        return (
            since_last_run
            if len(since_last_run.before) >= needed_steps(run.watch_seconds)
            else reading.samples({other.id for other in through})
        )

    def changed_again(self, run: Run) -> Run | None:
        """The latest run of a policy that changed a target of its earlier ``run``, or of one in between that did so: it
        must be rolled back first."""
        latest, targets = None, self._targets(run)
        for later in reversed(self._runs_through(run, self._guests(run), self.latest(run.host))):
            changed = self._targets(later)
            if (
                later.started_at >= run.started_at
                and later.state in ("applied", "applied_partly")
                and changed & targets
            ):
                latest, targets = later, targets | changed
        return latest

    def latest(self, host: str) -> tuple[Run, ...]:
        return self._runs.list(host, PageRequest(_NEIGHBOURS), state=None).items

    def _runs_through(self, run: Run, guests: Mapping[str, str], latest: Iterable[Run]) -> list[Run]:
        """The last one first."""
        if run.actor != POLICY_ACTOR:
            return []
        others = (other for other in latest if other.id != run.id)
        return [other for other in others if self._is_of_policy(other) or self._is_release_beside(other, guests)]

    @staticmethod
    def _is_of_policy(run: Run) -> bool:
        return run.actor == POLICY_ACTOR and run.kind != "release"

    def _is_release_beside(self, run: Run, guests: Mapping[str, str]) -> bool:
        return run.kind == "release" and self._guests(run).keys().isdisjoint(guests)

    def _read(
        self, run: Run, before: timedelta, span: timedelta, guests: dict[str, str], latest: Iterable[Run]
    ) -> _Reading:
        first, ended, now = run.started_at - before, run.ended_at or self._now(), self._now()
        disturbances = tuple(self._disturbances(run, guests, latest))
        step, missing, last = finest(first, now), "", min(ended + span, now)
        histories: tuple[History, ...] = ()
        try:
            if first < last:
                histories = _whole(self._hosts.agent(run.host), first, last, step, JUDGED)
            else:
                missing = "the clock was set back since the run"
        except NotFound as error:
            missing = str(error)
        return _Reading(run, first, ended, ended + span, step, guests, disturbances, histories, missing)

    def _disturbances(self, run: Run, guests: Mapping[str, str], latest: Iterable[Run]) -> Iterator[_Disturbance]:
        for other in latest:
            if other.id == run.id or other.state == "failed":
                continue
            is_later = other.started_at >= run.started_at
            if (at := other.started_at if is_later else other.ended_at) is not None:
                yield _Disturbance(at, is_later, f"run {other.id} changed the host then", other.id)
        for event in self._hosts.agent(run.host).host_events(0, 0.0, None):
            if event.kind in _DISTURBING and event.subject in guests:
                what = f"guest {guests[event.subject]} was {event.kind.removeprefix('guest-')} then"
                yield _Disturbance(event.at, event.at > run.started_at, what)

    def _guests(self, run: Run) -> dict[str, str]:
        return guests_of(entry.change.target for entry in self._runs.entries(run.id))

    def _targets(self, run: Run) -> set[object]:
        return {entry.change.target.key for entry in self._runs.entries(run.id)}


def _whole(agent: Agent, begin: datetime, end: datetime, step: int, series: tuple[str, ...]) -> tuple[History, ...]:
    """In parts where one answer cannot have all values. Raises like Agent.measures."""
    try:
        return agent.measures(begin, end, step, "", series)
    except Invalid as error:
        if error.details["field"] != "step" or len(series) == 1:
            raise
    histories: dict[str, History] = {}
    for part in (series[: len(series) // 2], series[len(series) // 2 :]):
        for history in _whole(agent, begin, end, step, part):
            known = histories.get(history.subject, history)
            histories[history.subject] = replace(known, values={**known.values, **history.values})
    return tuple(histories.values())


DEFAULT = timedelta(hours=1)
"""The length of a span without a beginning. No earlier time can be so long ago."""

_GUEST = "guest"

_EARLIEST = datetime.min.replace(tzinfo=UTC) + DEFAULT


class MeasureReader:
    def __init__(self, hosts: Hosts, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._now = now

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        if not 0 < seconds <= MAX_SECONDS:
            raise Invalid("seconds", seconds, f"a number of seconds above 0 and up to {MAX_SECONDS:g}")
        running = self._hosts.observe(host, 0.0).running_guest(guest)
        return self._hosts.blame(host, running.uuid, seconds)

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        series = tuple(dict.fromkeys(series))
        require_series(series)
        of_guest = series_of(_GUEST, series)
        if guest is not None and not of_guest:
            require_series(series, GUEST_SERIES)
        now = self._now()
        end = min(span.end or now, now)
        begin = span.begin or max(end, _EARLIEST) - DEFAULT
        if begin >= end:
            raise Invalid("from", begin.isoformat(), f"a time before {end.isoformat()}")
        step = span.step or finest(begin, now)
        if (end - begin).total_seconds() / step > MAX_VALUES:
            raise Invalid("step", step, f"a longer step, or a shorter span: at most {MAX_VALUES} values of each series")
        if guest is not None:
            histories = self._of_guest(host, begin, end, step, guest, series)
        else:
            step, histories = self._read(host, begin, end, step, series, coarser=span.step is None)
        return Measures(host, step, of_guest, series_of(HOST, series), histories)

    def _of_guest(
        self, host: str, begin: datetime, end: datetime, step: int, guest: str, series: tuple[str, ...]
    ) -> tuple[History, ...]:
        try:
            # A guest may have the name that means the host.
            histories = self._hosts.agent(host).measures(begin, end, step, "" if guest == HOST else guest, series)
        except (NotFound, Invalid) as error:
            if isinstance(error, Invalid) and error.details["field"] != "subject":
                raise
            raise NotFound("measures of guest", guest) from None  # no id and no name of a guest that runs
        if not (
            histories := tuple(
                history for history in histories if history.subject != HOST and guest in (history.subject, history.name)
            )
        ):
            raise NotFound("measures of guest", guest)
        return histories

    def _read(
        self, host: str, begin: datetime, end: datetime, step: int, series: tuple[str, ...], *, coarser: bool
    ) -> tuple[int, tuple[History, ...]]:
        steps = [longer for longer in sorted(ROWS) if longer > step] if coarser else []
        try:
            return step, self._hosts.agent(host).measures(begin, end, step, "", series)
        except Invalid as error:
            if not steps or error.details["field"] != "step":
                raise
            return self._read(host, begin, end, steps[0], series, coarser=True)
