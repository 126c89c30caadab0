"""The calls that the service makes to the agent of a host, in the same process or in another one."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pinner.model.machine.health import AgentHealth
from pinner.model.machine.topology import Topology
from pinner.model.outcome.measures import History
from pinner.model.plan.plan import Plan
from pinner.model.policy.drift import Drift
from pinner.model.policy.event import HostEvent
from pinner.model.processes.blame import Blame
from pinner.model.reading import HostReading
from pinner.model.run.agent_audit import AgentRecord, ChainHead, SignedHead
from pinner.model.run.journal import Entry, Run
from pinner.model.snapshot import Snapshot

Progress = Callable[[Entry, int], None]
"""Called with an entry and the number of entries of the run. The first call has an ``intent``: the run is in the
journal and nothing has been changed yet. After that, there is one call after every change."""


class Agent(Protocol):
    """The part of pinner that reads and changes a host. Every call returns when its work is done."""

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """A new snapshot, from two samples ``sample_seconds`` apart. Raises HostUnreachable, NotPermitted."""

    def topology(self) -> Topology:
        """The topology as it is now, without processes and guests. Raises HostUnreachable."""

    def reading(self, sample_seconds: float) -> HostReading:
        """A new snapshot without loads, and two samples of the host's counters ``sample_seconds`` apart, for the
        checks. Raises HostUnreachable, NotPermitted."""

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """Make all changes of the plan, or leave the host unchanged; returns the run, which has ended.

        Raises StalePlan, Blocked, HostBusy or Invalid before anything is changed; then the journal does not contain the
        run. If a later change fails, no exception is raised: the run ends as ``undone`` and contains the error.
        """

    def rollback(self, run: Run, progress: Progress) -> Run:
        """Undo every change of the run ``run.undoes`` in reverse order, or of all runs of the host where it is empty.

        Raises NotFound, RunConflict, HostBusy.
        """

    def run(self, run: str) -> Run:
        """The run with this id, as the journal has it. Raises NotFound; then the run has changed nothing yet, but its
        call may still be on its way: only ``close_run`` says that it never begins."""

    def close_run(self, run: Run) -> Run:
        """The run as the journal has it, after the agent has made sure that the run does not begin later.

        Where the journal does not have the run, the agent stores it there as ``failed`` (NEVER_BEGUN). From then on, an
        apply or a rollback with this id raises RunConflict. Raises Invalid, StoreUnavailable.
        """

    def entries(self, run: str) -> tuple[Entry, ...]:
        """The journal's entries of a run."""

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        """Host events with a number above ``after``, in order; 0 returns all events that the agent still has.

        Waits for an event, at most ``timeout`` seconds, and returns none after that. The agent of a captured machine
        returns none at once, and an agent that ends lets all waiting calls return. Starts of processes are reported
        only for ``process_names`` (comm), which apply until the next call with names; None: the earlier ones apply.
        If events were lost, the first event says so. Changes that pinner makes itself are not reported.
        """

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        """The kept values of a subject (HOST, a guest's UUID, the name of a guest that runs; empty: of all) between two
        times, in steps of ``step`` seconds (of measures.ROWS): those of the ``series`` with these names, or all. Raises
        NotFound where nothing is measured, Invalid, StoreUnavailable, HostUnreachable."""

    def blame(self, guest: str, seconds: float) -> Blame:
        """The threads that run while threads of the guest (by UUID) wait for a CPU, in the next ``seconds``. Raises
        NotFound, NotPermitted where the kernel cannot trace, Busy, Gone, HostUnreachable."""

    def health(self) -> AgentHealth:
        """Whether the agent's parts do their work. It reads nothing of the host, and asks no libvirt. Raises
        HostUnreachable."""

    def has_guest(self, guest: str) -> bool:
        """Whether libvirt has the guest (by UUID), active or not. Raises NotPermitted, HostUnreachable, Busy."""

    def publish_guest_event(self, guest: str, detail: str) -> None:
        """Publish a host event: Nova, a hook or a caller reported an event of the guest (by UUID). Raises
        HostUnreachable."""

    def publish_policy_set(self) -> None:
        """Publish a host event: the host has a new policy. Raises HostUnreachable."""

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """The same drifts, where each cause ``unknown`` is replaced by the cause that the host shows now, if any.

        Reads the cpusets above the threads, systemd's settings, the running balancers, and the writers of pins (Cause,
        Drift.detail). Changes nothing; a cause that cannot be read raises no exception.
        """

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """Write into the guest's metadata (by UUID) whether it is excluded from placement (Guest.excluded).

        Writes the live metadata, and the persistent definition if the guest has one. Raises Gone, NotPermitted,
        HostUnreachable, and Busy where the caller has marked too many guests just now.
        """

    def audit_head(self, centre: ChainHead | None) -> SignedHead:
        """The signed head of the agent's audit trail, after the agent has added the centre's head to it.

        None: the agent adds nothing. Raises NotFound for a captured machine, which has no trail, StoreUnavailable, and
        Busy where the caller has reported too many heads just now.
        """

    def audit_records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        """At most ``limit`` records (1 to 1000) of the agent's audit trail with a number above ``after``, in their
        order. Raises NotFound for a captured machine, and Invalid."""
