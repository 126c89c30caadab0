"""The service calls the agent of a host in its own process or in another one."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pinner.model.event import HostEvent
from pinner.model.health import AgentHealth
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.measures import History
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.reading import HostReading
from pinner.model.run.agent_audit import AgentRecord, ChainHead, SignedHead
from pinner.model.run.journal import Entry, Run
from pinner.model.snapshot import Snapshot

Progress = Callable[[Entry, int], None]
"""Gets an entry and the number of entries: first an ``intent``, when the journal has the run, then each change."""


class Agent(Protocol):
    """Every call returns when its work is done."""

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """From two samples ``sample_seconds`` apart. Raises HostUnreachable, NotPermitted."""

    def topology(self) -> Topology:
        """The present one, without processes and guests. Raises HostUnreachable."""

    def reading(self, sample_seconds: float) -> HostReading:
        """For the checks: a snapshot without loads, and two samples of the counters ``sample_seconds`` apart. Raises
        HostUnreachable, NotPermitted."""

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """Returns the ended run. Raises StalePlan, Blocked, HostBusy or Invalid before anything is changed, and the
        journal has no run. If a later change fails, the run ends as ``applied_partly``, ``undone`` or ``failed``."""

    def rollback(self, run: Run, progress: Progress) -> Run:
        """Undo the run ``run.undoes`` in reverse, or all runs of the host. Raises NotFound, RunConflict, HostBusy."""

    def run(self, run: str) -> Run:
        """The journal's. Raises NotFound; then it has changed nothing, but its call may be on its way: only
        ``close_run`` says that it never begins."""

    def close_run(self, run: Run) -> Run:
        """The journal's run, which does not begin later: an unknown run is stored as ``failed`` (NEVER_BEGUN), and
        later calls with this id raise RunConflict. Raises Invalid, StoreUnavailable."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """By ``seq``."""

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        """Those with a number above ``after``, in order; 0: all that the agent still has. Waits for one at most
        ``timeout`` seconds; not for a captured machine, nor when the agent ends. Starts of processes are reported only
        for ``process_names`` (comm), which apply until the next call with names; None: the earlier ones. If events were
        lost, the first event says so. pinner's own changes are not reported."""

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        """Of a subject (HOST, a guest's UUID, the name of a running guest; empty: of all) in steps of ``step`` seconds
        (measures.ROWS). Raises NotFound where nothing is measured, Invalid, StoreUnavailable, HostUnreachable."""

    def blame(self, guest: str, seconds: float) -> Blame:
        """Who runs while threads of the guest (by UUID) wait for a CPU. Raises NotFound, NotPermitted where the kernel
        cannot trace, Busy, Gone, HostUnreachable."""

    def health(self) -> AgentHealth:
        """It asks neither host nor libvirt. Raises HostUnreachable."""

    def has_guest(self, guest: str) -> bool:
        """Whether libvirt has the guest (by UUID), active or not. Raises NotPermitted, HostUnreachable, Busy."""

    def publish_guest_event(self, guest: str, detail: str) -> None:
        """Nova, a hook or a caller reported an event of the guest (by UUID). Raises HostUnreachable."""

    def publish_policy_set(self) -> None:
        """Raises HostUnreachable."""

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """Each cause ``unknown`` becomes the one that the host shows now: cpusets, systemd's settings, balancers,
        writers of pins. Raises nothing for an unreadable one."""

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """Write Guest.excluded into the guest's metadata, live and in its definition. Raises Gone, NotPermitted,
        HostUnreachable, and Busy where the caller has marked too many guests just now."""

    def audit_head(self, centre: ChainHead | None) -> SignedHead:
        """The signed head of the agent's audit trail, which first gets the centre's, if any. Raises NotFound for a
        captured machine, StoreUnavailable, and Busy where the caller has reported too many heads just now."""

    def audit_records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        """At most ``limit`` (1 to 1000), in order. Raises NotFound for a captured machine, and Invalid."""
