"""A plan: what would change on a host, from what to what, and why."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.change import PlannedChange, State, Target
from pinner.model.cpuset import CpuSet
from pinner.model.request import Request


@dataclass(frozen=True, slots=True)
class Wanted:
    """A strategy's answer for one target; ``cpus`` is where its threads may run."""

    target: Target
    cpus: CpuSet
    reason: str
    state: State | None = None
    """Of a target without threads: the state that it should have."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The CPU sets as resolved. On a small host sets coincide; ``notes`` says which and why."""

    housekeeping: CpuSet
    emulator: CpuSet
    vcpu: CpuSet
    notes: tuple[str, ...] = ()

    @property
    def cpus(self) -> CpuSet:
        """Those of all roles."""
        return self.housekeeping | self.emulator | self.vcpu


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A guest, a process or some of its threads that the plan does not touch, and why, with the numbers."""

    target: Target
    """Of kind guest for a guest as a whole."""
    why: str
    threads: tuple[int, ...] = ()
    """The thread ids that are left out while the target's other threads are placed; empty: the whole target."""

    @property
    def label(self) -> str:
        """What is left out, for people. Code compares ``target`` and ``threads`` instead."""
        return f"{self.target} thread {', '.join(map(str, self.threads))}" if self.threads else str(self.target)


@dataclass(frozen=True, slots=True)
class Isolation:
    """What ``isolated`` needs of the kernel, and whether this boot has it."""

    wanted: CpuSet
    present: CpuSet
    """Those of the wanted CPUs that are isolated now."""
    kernel_arguments: str
    """isolcpus=managed_irq,domain,LIST nohz_full=LIST rcu_nocbs=LIST"""
    grub_line: str
    """The line for /etc/default/grub that keeps today's arguments."""
    partition: tuple[str, ...]
    """Shell commands that isolate the wanted CPUs live in a cgroup v2 partition; none where the kernel has none."""
    partition_note: str
    """What the live form gives and lacks, or why it cannot be had here."""


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """Where a guest's memory lies. Remote is what lies on another node than the vCPU that asks for it, on average, as
    each vCPU spreads evenly over the CPUs that it may use: under one node for all vCPUs, what lies off that node."""

    target: Target
    """Of kind memory."""
    per_node: Mapping[int, int]
    """Node id to resident KiB of QEMU."""
    remote_now_kib: int
    remote_kib: int
    """As planned, while no memory is moved."""
    home: int | None
    """The node that the plan gives to all its vCPUs, to which its memory can be moved; None: it gives no single one,
    or the host has no other node with memory."""


@dataclass(frozen=True, slots=True)
class Score:
    """The one objective, lower is better, 0 is a host where nothing fights: ``parts`` add up to ``total``."""

    total: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan was computed from."""

    snapshot: str
    """The snapshot's content hash."""
    taken_at: datetime
    fingerprint: str
    """Topology.fingerprint then."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """What placing all guests anew costs and gains, compared with leaving who sits well."""

    guests: int
    """How many guests get other CPUs."""
    threads: int
    """How many threads of theirs move."""
    gain: float
    """How much lower the score gets."""
    taken: bool
    """Whether the plan does it; where it gains nothing, the plan leaves who sits well."""


Purpose = Literal["place", "release"]
"""place    the plan allocates CPUs to guests and processes
release  the plan restores a guest's prior affinities and allocates nothing, so other owners of CPUs do not limit it"""


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement, computed from one snapshot by pure code: the same snapshot and request give the same plan."""

    id: str
    host: str
    request: Request
    basis: Basis
    roles: Roles
    wanted: tuple[Wanted, ...]
    """Where every placed target belongs, whether it is there already or not."""
    changes: tuple[PlannedChange, ...]
    """What of it is not so yet; empty: nothing to do."""
    unplaced: tuple[LeftOut, ...]
    """Guests that the strategy could not place."""
    skipped: tuple[LeftOut, ...]
    """Busy processes, threads and guests that are not ours to move."""
    warnings: tuple[str, ...]
    score_before: Score
    score_after: Score
    isolation: Isolation | None = None
    blocked: str = field(default="")
    """Why this plan cannot be applied as it is; empty: it can."""
    memory: tuple[GuestMemory, ...] = ()
    """Of every guest whose memory the kernel tells by node."""
    rebalance: Rebalance | None = None
    """Where a rebalance was asked for."""
    purpose: Purpose = "place"


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A plan in a list."""

    id: str
    host: str
    strategy: str
    created_at: datetime
    changes: int
    unplaced: int
    blocked: str


def plan_id(*made_of: bytes) -> str:
    """``plan-`` and 16 hexadecimal digits of the SHA-256 of everything that the plan was made of."""
    digest = hashlib.sha256(b"\n".join(made_of)).hexdigest()
    return f"plan-{digest[:16]}"
