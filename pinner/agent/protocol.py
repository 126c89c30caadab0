"""What the service may ask of a host's agent, wherever the agent runs."""

from collections.abc import Callable
from typing import Protocol

from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot

Progress = Callable[[Entry, int], None]
"""Called with an entry and how many entries the run has: once with an intent when the run is in the journal and
nothing is touched yet, then after every change."""


class Agent(Protocol):
    """The one that touches a host. Every call returns when its work is done."""

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """Take a snapshot; ``sample_seconds`` lie between its two samples. Raises HostUnreachable, NotPermitted."""

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """Make the plan so, or leave the host as it was; the run that comes back has ended.

        Raises StalePlan, Blocked, HostBusy or Invalid before anything is touched (then there is no journal of the
        run). A change that fails later is no exception but a run that ended ``undone``, its error in it.
        """

    def rollback(self, run: Run, progress: Progress) -> Run:
        """Take back the run named ``run.undoes``, in reverse order, exactly. Raises NotFound, RunConflict, HostBusy."""

    def run(self, run: str) -> Run:
        """The journal's word on a run. Raises NotFound where it knows none: then the run changed nothing."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """The journal's entries of a run."""
