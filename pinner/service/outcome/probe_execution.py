"""Carries out one probe, window by window. Ordinary runs switch between its placements."""

import logging
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from secrets import randbits
from typing import TypeVar

from pinner.model.change import guests_of
from pinner.model.errors import HostBusy, PinnerError, PolicyConflict, RunConflict
from pinner.model.event import HostEvent
from pinner.model.outcome.measures import HOST, ROWS
from pinner.model.outcome.outcome import CURRENT, WASH_OUT_SECONDS, Arm, Probe, ProbeState, Window
from pinner.model.page import MAX_LIMIT, PageRequest
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.journal import ApplyOptions, Run
from pinner.model.snapshot import Snapshot
from pinner.outcome import windows
from pinner.outcome.ranking import with_result
from pinner.outcome.samples import JUDGED, USES, control_use, samples
from pinner.service.hosts.hosts import Hosts
from pinner.service.runs.runs import RunManager
from pinner.store.runs.outcomes import Probes

LOG = logging.getLogger(__name__)

T = TypeVar("T")

BUSY_TRIES = 30
"""Tries, one a second, while another run works on the host."""
STEP = min(ROWS)
"""Seconds. A step of the history is complete three steps later, as long as the wash-out is."""
UNDO_TRIES = 10
"""Tries, one a second, to put the placement back at the end."""
_NEIGHBOURS = 50


class Switches:
    def __init__(self, runs: RunManager, probe: Probe, pause: Callable[[float], None]) -> None:
        self._runs = runs
        self._probe = probe
        self._pause = pause
        self._arm = CURRENT
        self._placed = ""
        """The run that placed the host as planned; empty: none."""

    def switch(self, arm: Arm) -> None:
        """Raises what the runs raise, and RunConflict where not all is placed. Each plan is made for the current
        placement, so this one lies between those of two plans."""
        if arm == self._arm:
            return
        if self._placed:
            undo = _ended(self._runs, self._patiently(lambda: _rollback(self._runs, self._placed, self._probe)))
            self._arm, self._placed = CURRENT, ""
            if not _is_undone(self._runs, undo):
                raise RunConflict(undo.id, undo.state, f"the placement is not as before: {undo.error}")
        if arm != CURRENT:
            self._placed = self.apply(arm, self._probe.mark).id
            self._arm = arm

    def apply(self, arm: Arm, origin: str) -> Run:
        """Raises like ``switch``."""
        self._require_no_all_off()
        plan, options = self._probe.plan_of[arm], ApplyOptions(all_or_nothing=True, allow_worse=True)
        caller = Caller(self._probe.actor, origin, "")
        run = _ended(self._runs, self._patiently(lambda: self._runs.apply(plan, options, caller)))
        if run.state != "applied":
            raise RunConflict(run.id, run.state, f"the plan is not placed: {run.error}")
        if not self._runs.entries(run.id):
            raise RunConflict(run.id, run.state, "it changed nothing: the host is as planned already")
        return run

    def _require_no_all_off(self) -> None:
        """Without a change in force, no rollback of this probe would fail after it."""
        for run in self._runs.list(self._probe.host, PageRequest(_NEIGHBOURS), state=None).items:
            if run.undoes_all and run.state != "failed" and run.started_at >= self._probe.started_at:
                raise RunConflict(run.id, run.state, "it has put everything off the host")

    def _patiently(self, start: Callable[[], T]) -> T:
        for _ in range(BUSY_TRIES):
            try:
                return start()
            except HostBusy:
                self._pause(1.0)
        return start()


def put_back(runs: RunManager, probe: Probe) -> tuple[str, str]:
    """Roll back the run of the probe, or of its winner, that is in place. Returns the run that could not be undone
    completely, and why; else empty texts. Raises HostBusy during a run of the probe, and other errors that may pass."""
    latest, marks = runs.list(probe.host, PageRequest(MAX_LIMIT), state=None).items, (probe.mark, probe.winner_mark)
    probe_runs = [run for run in latest if run.origin in marks]
    for run in probe_runs:
        if run.state == "running":
            raise HostBusy(probe.host, run.id)
    placed = next((run for run in probe_runs if run.kind == "apply" and _is_in_place(runs, run)), None)
    if placed is None:
        return "", ""
    try:
        undo = _ended(runs, _rollback(runs, placed.id, probe))
    except (RunConflict, PolicyConflict) as error:
        return placed.id, str(error)
    if not _is_undone(runs, undo):
        return placed.id, f"run {undo.id} is {undo.state}: {undo.error}"
    return "", ""


def _rollback(runs: RunManager, run: str, probe: Probe) -> Run:
    return runs.rollback(run, Caller(probe.actor, probe.mark, ""))


def _ended(runs: RunManager, run: Run) -> Run:
    for _ in runs.follow(run.id):
        pass
    return runs.get(run.id)


def _is_in_place(runs: RunManager, run: Run) -> bool:
    return run.state in ("applied", "applied_partly", "rolled_back_partly", "failed") and any(
        entry.state in ("intent", "done", "stuck") for entry in runs.entries(run.id)
    )


def _is_undone(runs: RunManager, undo: Run) -> bool:
    """A process that has ended leaves a rollback partly done."""
    stuck = any(entry.state == "stuck" for entry in runs.entries(undo.id))
    return undo.state in ("rolled_back", "rolled_back_partly") and not stuck


@dataclass(frozen=True, slots=True)
class Timing:
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    """The seconds of a clock that nobody sets."""
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    seed: Callable[[], int] = lambda: randbits(64)


class Stop:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.state: ProbeState = "interrupted"
        self.why = ""

    def order(self, state: ProbeState, why: str) -> None:
        """The first order counts."""
        if not self.event.is_set():
            self.state, self.why = state, why
            self.event.set()


class _StoppedError(Exception): ...


@dataclass(frozen=True, slots=True)
class _Span:
    arm: Arm
    since: datetime
    passed: float
    """The time in seconds of Timing.monotonic."""
    begin: datetime
    end: datetime
    before: Snapshot | None
    after: Snapshot | None


class ProbeExecution:
    def __init__(
        self,
        probe: Probe,
        plans: Iterable[Plan],
        hosts: Hosts,
        runs: RunManager,
        probes: Probes,
        timing: Timing,
        stop: Stop,
    ) -> None:
        self._probe = probe
        self._hosts = hosts
        self._runs = runs
        self._probes = probes
        self._timing = timing
        self._stop = stop
        self._switches = Switches(runs, probe, self._pause)
        self._guests = changed_guests(plans)
        self._events: tuple[HostEvent, ...] = ()
        self._after = 0

    def carry_out(self) -> None:
        """Puts the placement back at the end, and then places the winner if that is asked for. Never raises."""
        state: ProbeState = "ended"
        why = ""
        try:
            self._all_windows()
        except _StoppedError:
            state, why = self._stop.state, self._stop.why
        except PinnerError as error:
            state, why = "failed", str(error)
        except Exception:
            LOG.exception("probe %s failed", self._probe.id)
            state, why = "failed", "an unexpected error; the log of the server has it"
        try:
            self._end(state, why)
        except PinnerError as error:  # the next pass of the server ends the probe
            LOG.warning("the end of probe %s is not stored: %s", self._probe.id, error)

    def _all_windows(self) -> None:
        last: _Span | None = None
        self._read_events()
        self._events = ()
        for arm in self._probe.order:
            since, passed = self._timing.now(), self._timing.monotonic()
            self._switches.switch(arm)
            before = self._snapshot()
            self._pause(WASH_OUT_SECONDS)
            self._read(last)
            begin = self._timing.now()
            self._pause(self._probe.seconds)
            last = _Span(arm, since, passed, begin, self._timing.now(), before, self._snapshot())
        self._switches.switch(CURRENT)
        self._pause(WASH_OUT_SECONDS)
        self._read(last)

    def _read(self, span: _Span | None) -> None:
        if span is not None:
            self._probe = replace(self._probe, windows=(*self._probe.windows, self._window(span)))
            self._probes.put(self._probe)

    def _window(self, span: _Span) -> Window:
        clock = (self._timing.now() - span.since).total_seconds()
        if why := windows.jumped(clock, self._timing.monotonic() - span.passed):
            return Window(span.arm, {}, {}, why)
        try:
            histories = self._hosts.agent(self._probe.host).measures(span.begin, span.end, STEP, "", (*JUDGED, *USES))
            self._read_events()
        except PinnerError as error:
            return Window(span.arm, {}, {}, str(error))
        guests = self._guests or {history.subject for history in histories if history.subject != HOST}
        window = windows.window(span.arm, samples(histories, guests, STEP), span.begin, span.end, STEP)
        shifted = windows.shifted(control_use(histories, guests, span.begin, span.end, STEP))
        return replace(window, void=self._void(span) or shifted or window.void)

    def _void(self, span: _Span) -> str:
        if span.before is None or span.after is None:
            return "the guests could not be read"
        latest = self._runs.list(self._probe.host, PageRequest(_NEIGHBOURS), state=None).items
        self._events = tuple(event for event in self._events if event.at >= span.since)
        names = {guest.uuid: guest.name for guest in span.before.guests}
        return (
            windows.crossed(latest, self._probe.mark, span.since, span.end)
            or windows.disturbed(span.before, span.after)
            or windows.reported(self._events, names, span.since, span.end)
        )

    def _read_events(self) -> None:
        """The watched processes stay those of the policy."""
        events = self._hosts.agent(self._probe.host).host_events(self._after, 0.0, None)
        self._events = (*self._events, *events)
        self._after = events[-1].seq if events else self._after

    def _snapshot(self) -> Snapshot | None:
        try:
            return self._hosts.observe(self._probe.host, 0.0)
        except PinnerError as error:
            LOG.warning("a window of probe %s does not count: %s", self._probe.id, error)
            return None

    def _require_going(self) -> None:
        if self._stop.event.is_set():
            raise _StoppedError

    def _pause(self, seconds: float) -> None:
        if self._timing.wait(self._stop.event, seconds):
            raise _StoppedError

    def _end(self, state: ProbeState, why: str) -> None:
        """The server's next pass does what fails here."""
        self._probe = replace(self._probe, why=why)
        try:
            undone = self._insistently(lambda: put_back(self._runs, self._probe))
            ended = self._with_winner(with_end(self._probe, state, why, undone))
            self._insistently(lambda: store_end(self._probes, ended, self._timing.now()))
        except PinnerError:
            self._probes.put(self._probe)

    def _insistently(self, act: Callable[[], T]) -> T:
        for _ in range(UNDO_TRIES):
            try:
                return act()
            except PinnerError as error:
                LOG.warning("probe %s does not end: %s", self._probe.id, error)
                self._timing.wait(threading.Event(), 1.0)
        return act()

    def _with_winner(self, probe: Probe) -> Probe:
        """Until the end of the probe is stored, a kill puts the placement back that the probe found."""
        if not probe.keep or not probe.winner:
            return probe
        try:
            self._require_going()
            kept = self._switches.apply(probe.winner, probe.winner_mark).id
            self._require_going()
            return replace(probe, kept=kept)
        except PinnerError as error:
            why = f"the winner is not kept: {error}"
        except _StoppedError:
            undone = self._insistently(lambda: put_back(self._runs, probe))
            return with_end(self._probe, self._stop.state, self._stop.why, undone)
        # If the winner cannot be undone now, the pass still knows the result.
        self._probe = replace(probe, state="running", why=why)
        left, hindrance = self._insistently(lambda: put_back(self._runs, probe))
        return replace(probe, why="; ".join(filter(None, (why, hindrance))), left=left)


def with_end(probe: Probe, state: ProbeState, why: str, undone: tuple[str, str]) -> Probe:
    """Has the result if all windows are over; ``undone`` is the result of ``put_back``."""
    in_place, hindrance = undone
    why = "; ".join(part for part in (why, hindrance) if part)
    ended = replace(probe, state="failed" if in_place else state, why=why, left=in_place)
    return with_result(ended) if ended.state == "ended" else ended


def store_end(probes: Probes, probe: Probe, now: datetime) -> None:
    caller, result = Caller(probe.actor, probe.mark, ""), f"{probe.state}: {probe.result or probe.why}"
    event = audit_event(caller, now, AuditAction.PROBE_END, probe.host, probe.id, result)
    probes.end(replace(probe, ended_at=now), event)


def changed_guests(plans: Iterable[Plan]) -> dict[str, str]:
    """None, for all guests, where a plan changes the host alone: what it does to the others counts, too."""
    guests = [guests_of(change.target for change in plan.changes) for plan in plans]
    return dict(ChainMap(*guests)) if all(guests) else {}
