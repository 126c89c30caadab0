"""A host at one moment: all that a planner sees."""

from dataclasses import dataclass, field
from datetime import datetime

from pinner.model.cpuset import CpuSet
from pinner.model.guest import Guest, nova_cpus
from pinner.model.nova import NovaConf, NovaGuest, NovaOwns, NovaSets
from pinner.model.process import Process
from pinner.model.topology import Topology

MAX_SAMPLE_SECONDS = 300.0
"""The longest sample that may be asked for."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One host, its guests and its processes, taken together.

    ``processes`` holds the host's own and QEMU's; a guest's threads stand in both, with hold ``guest`` in the former.
    """

    host: str
    taken_at: datetime
    sample_seconds: float
    """How long the two samples behind every load lie apart; 0 where loads were not measured."""
    topology: Topology
    guests: tuple[Guest, ...]
    processes: tuple[Process, ...]
    baseline: CpuSet
    """The affinity that nobody narrowed: process 1's. A smaller mask was somebody's intent."""
    dedicated: CpuSet = CpuSet()
    """CPUs that Nova dedicates to guests on this host (cpu_dedicated_set)."""
    shared: CpuSet = CpuSet()
    """CPUs that Nova keeps all other guests' vCPUs on (cpu_shared_set); none: it does not say."""
    nova: NovaConf | None = None
    """nova.conf, where there is one."""
    placed: tuple[CpuSet, ...] = ()
    """Masks that pinner itself gave to processes and has not taken back: not somebody else's intent."""
    warnings: tuple[str, ...] = field(default=())

    def nova_owns(self) -> NovaOwns:
        """What is Nova's: the sets of its configuration, and the guests that it pinned."""
        online = self.topology.online
        guests = (
            NovaGuest(guest.uuid, guest.name, nova_cpus(guest, online), not guest.emulator.policy)
            for guest in self.guests
            if guest.dedicated
        )
        return NovaOwns(NovaSets(self.dedicated, self.shared), tuple(guests))
