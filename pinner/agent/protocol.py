"""What the service may ask of a host's agent, wherever the agent runs."""

from collections.abc import Callable
from typing import Protocol

from pinner.model.drift import Drift
from pinner.model.event import HostEvent
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

    def host_events(self, after: int, timeout: float, names: tuple[str, ...]) -> tuple[HostEvent, ...]:
        """What happened on the host since the news with number ``after``, in order; 0: all that is still kept.

        Waits until there is some, at most ``timeout`` seconds, and gives none then; a captured machine gives none at
        once, and an agent that ends lets its callers go. Births of processes are told only of ``names``
        (comm), which hold until the next call. Where news was lost the first one says so. What pinner itself changes is
        no news.
        """

    def knows(self, guest: str) -> bool:
        """Whether libvirt has the guest (by UUID), active or not. Raises NotPermitted, HostUnreachable, Busy."""

    def publish_guest_event(self, guest: str, words: str) -> None:
        """Somebody told that something happened to a guest (by UUID): to whoever waits for news that is news. Raises
        HostUnreachable."""

    def policy_set(self) -> None:
        """The host has another policy: to whoever waits for news that is news. Raises HostUnreachable."""

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """The same drifts, those of cause ``unknown`` with the cause that the host can tell now (Cause, Drift.detail):
        cpusets above their threads, systemd's settings, what is running, who wrote pins. Reads only; never raises for
        what it cannot find out."""

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """Write into the guest's metadata (by UUID; live, and in its definition where it has one) that its CPUs are to
        be left alone, or that they are not: Guest.exempt. Raises Gone, NotPermitted, HostUnreachable."""
