"""A host at one moment: all that a planner sees."""

from dataclasses import dataclass, field
from datetime import datetime

from pinner.model.cpuset import CpuSet
from pinner.model.guest import Guest
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
    placed: tuple[CpuSet, ...] = ()
    """Masks that pinner itself gave to processes and has not taken back: not somebody else's intent."""
    warnings: tuple[str, ...] = field(default=())
