"""The switches of a probe between two placements, by ordinary runs."""

from collections.abc import Callable
from typing import TypeVar

from pinner.model.errors import HostBusy, PolicyConflict, RunConflict
from pinner.model.outcome.outcome import Arm, Probe
from pinner.model.page import MAX_LIMIT, PageRequest
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Run
from pinner.service.runs.runs import RunManager

T = TypeVar("T")

BUSY_TRIES = 30
"""While another run works on the host, once a second."""


class Switches:
    def __init__(self, runs: RunManager, probe: Probe, pause: Callable[[float], None]) -> None:
        self._runs = runs
        self._probe = probe
        self._pause = pause
        self._caller = Caller(probe.actor, probe.mark, "")
        self._placed = ""
        """The run that placed the host as planned; empty: the host is as it was."""

    def switch(self, arm: Arm) -> None:
        """Raises what the runs raise, and RunConflict where not all is placed."""
        if arm == "planned" and not self._placed:
            self._placed = self._applied().id
        elif arm == "current" and self._placed:
            undo = _ended(self._runs, self._patiently(lambda: _rollback(self._runs, self._placed, self._probe)))
            self._placed = ""
            if not _is_undone(self._runs, undo):
                raise RunConflict(undo.id, undo.state, f"the placement is not as before: {undo.error}")

    def _applied(self) -> Run:
        options = ApplyOptions(all_or_nothing=True)
        run = _ended(self._runs, self._patiently(lambda: self._runs.apply(self._probe.plan, options, self._caller)))
        if run.state != "applied":
            raise RunConflict(run.id, run.state, f"the plan is not placed: {run.error}")
        if not self._runs.entries(run.id):
            raise RunConflict(run.id, run.state, "it changed nothing: the host is as planned already")
        return run

    def _patiently(self, start: Callable[[], T]) -> T:
        for _ in range(BUSY_TRIES):
            try:
                return start()
            except HostBusy:
                self._pause(1.0)
        return start()


def put_back(runs: RunManager, probe: Probe) -> tuple[str, str]:
    """Roll back the run of the probe that is in place, if there is one.

    Returns the run that could not be undone completely, and why; or two empty texts. Raises HostBusy while a run of the
    probe is under way, and what else may be over later.
    """
    own = [run for run in runs.list(probe.host, PageRequest(MAX_LIMIT), state=None).items if run.origin == probe.mark]
    for run in own:
        if run.state == "running":
            raise HostBusy(probe.host, run.id)
    placed = next((run for run in own if run.kind == "apply" and _is_in_place(runs, run)), None)
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
