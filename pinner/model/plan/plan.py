"""A plan: the changes on a host, each with its reason; and the placement that is recorded after an apply."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.change import PlannedChange, Target, ThreadKey
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import State
from pinner.model.plan.objective import Objective, Optimality, Term
from pinner.model.plan.request import Request


@dataclass(frozen=True, slots=True)
class Wanted:
    """A strategy's answer for one target; ``cpus`` is where its threads may run."""

    target: Target
    """The target."""
    cpus: CpuSet
    """The CPUs that the plan gives to the target."""
    reason: str
    """Why it gets these CPUs."""
    state: State | None = None
    """The wanted state of a target without threads; None for one with threads."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The CPU sets as resolved. On a small host sets share CPUs; ``notes`` says which and why."""

    housekeeping: CpuSet
    """The CPUs of the host's busy processes."""
    emulator: CpuSet
    """The CPUs of QEMU's own threads."""
    vcpu: CpuSet
    """The CPUs of the vCPUs."""
    notes: tuple[str, ...] = ()
    """The sets that share CPUs, and why."""

    @property
    def cpus(self) -> CpuSet:
        return self.housekeeping | self.emulator | self.vcpu


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A guest, a process or some of its threads that the plan does not touch, and why, with the numbers."""

    target: Target
    """The target; of kind guest if a whole guest is left out."""
    why: str
    """The reason, with its numbers."""
    threads: tuple[int, ...] = ()
    """The thread ids that are left out while the target's other threads are placed; empty: the whole target."""

    @property
    def label(self) -> str:
        """For people. Code compares ``target`` and ``threads``."""
        return f"{self.target} thread {', '.join(map(str, self.threads))}" if self.threads else str(self.target)


@dataclass(frozen=True, slots=True)
class Isolation:
    """The kernel settings that the strategy ``isolated`` needs, and whether this boot has them."""

    wanted: CpuSet
    """The CPUs that the kernel should isolate."""
    present: CpuSet
    """The wanted CPUs that are isolated now."""
    kernel_arguments: str
    """isolcpus=managed_irq,domain,LIST nohz_full=LIST rcu_nocbs=LIST"""
    grub_line: str
    """The line for /etc/default/grub, with the current arguments."""
    partition: tuple[str, ...]
    """Shell commands that isolate the wanted CPUs live in a cgroup v2 partition; empty if the kernel has no
    partitions."""
    partition_note: str
    """The effects and limits of the live form, or why this host cannot have it."""


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """The nodes of a guest's memory.

    Memory is remote to a vCPU that runs on another node. Each vCPU counts as spread evenly over its CPUs, and the
    remote memory is the mean over all vCPUs. If all vCPUs are on one node, it is the memory on the other nodes.
    """

    target: Target
    """Of kind memory."""
    per_node: Mapping[int, int]
    """Node id to resident KiB of QEMU."""
    remote_now_kib: int
    """KiB on nodes that run no vCPU of the guest now."""
    remote_kib: int
    """The remote memory under the plan, before any memory is moved."""
    home: int | None
    """The node on which the plan places all vCPUs of the guest: the guest's memory can move to this node. None if the
    plan uses several nodes, or the host has no other node with memory."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The snapshot from which a plan was computed."""

    snapshot: str
    """The snapshot's content hash."""
    taken_at: datetime
    """The time of the snapshot."""
    fingerprint: str
    """Topology.fingerprint of that snapshot."""
    boot: str = ""
    """Snapshot.boot of that snapshot."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The cost and gain of placing all guests anew, compared with leaving well placed guests where they are."""

    guests: int
    """How many guests get other CPUs."""
    threads: int
    """How many threads of these guests move."""
    gain: float
    """How much lower the decisive tier of the objective gets: the first one that changes."""
    taken: bool
    """Whether the plan places all guests anew; where that gains nothing, well placed guests stay."""
    terms: tuple[Term, ...] = ()
    """The terms of the decisive tier that change: before = well placed guests stay, after = all are placed anew."""


@dataclass(frozen=True, slots=True)
class Move:
    """A guest that has a place and gets another one, because of a new guest."""

    guest: Target
    """The guest."""
    terms: tuple[Term, ...] = ()
    """The gain: the terms of the objective's decisive tier that change, without the move and with it. Empty for a guest
    that makes room for a guest without a place. Guests that move together have the same terms."""


Purpose = Literal["place", "release"]
"""release: the plan restores a guest's prior affinities and allocates nothing, so other owners of CPUs do not limit
it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement, computed from one snapshot by pure code: the same snapshot and request give the same plan."""

    id: str
    """The id of the plan: a hash of its snapshot and request."""
    host: str
    """The name of the host."""
    request: Request
    """The request."""
    basis: Basis
    """The snapshot that the plan was made from."""
    roles: Roles
    """The CPU sets."""
    wanted: tuple[Wanted, ...]
    """The CPUs of every placed target, whether its threads run there already or not."""
    changes: tuple[PlannedChange, ...]
    """The changes that the host still needs; empty: nothing to do."""
    unplaced: tuple[LeftOut, ...]
    """Guests that the strategy could not place."""
    skipped: tuple[LeftOut, ...]
    """Busy processes, threads and guests that pinner does not move."""
    warnings: tuple[str, ...]
    """What an operator should know before an apply."""
    objective: Objective = field(default_factory=Objective)
    """The terms of the objective, now and after an apply."""
    isolation: Isolation | None = None
    """What `isolated` needs from the kernel; null for other strategies."""
    blocked: str = field(default="")
    """Why this plan cannot be applied as it is; empty where it can."""
    memory: tuple[GuestMemory, ...] = ()
    """One for each guest for which the kernel reports memory by node."""
    rebalance: Rebalance | None = None
    """Set where the request asks for a rebalance."""
    moves: tuple[Move, ...] = ()
    """The guests that move because of new guests, at most as many as the request allows."""
    optimality: Optimality | None = None
    """How good the allocation of CPUs is, by `isolated` and `optimal`; null for other strategies."""
    purpose: Purpose = "place"
    """place: to place guests; release: to give a guest its earlier CPUs back."""
    contested: CpuSet = CpuSet()
    """The isolated CPUs that the plan hands out although a vCPU that stays was pinned there when the plan was made."""


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A plan in a list."""

    id: str
    """The id of the plan."""
    host: str
    """The name of the host."""
    strategy: str
    """The name of the strategy."""
    created_at: datetime
    """The time at which the plan was stored."""
    changes: int
    """The number of changes."""
    unplaced: int
    """The number of guests without a place."""
    blocked: str
    """Why the plan cannot be applied; else empty."""


CpusByGuest = Mapping[str, Mapping[int, CpuSet]]
"""UUID, then the vCPU's number."""


def vcpus_by_guest(wanted: Iterable[Wanted]) -> dict[str, dict[int, CpuSet]]:
    """Placed vCPUs only."""
    found: dict[str, dict[int, CpuSet]] = {}
    for want in wanted:
        if want.target.kind == "vcpu" and want.target.part is not None:
            found.setdefault(want.target.owner, {})[want.target.part] = want.cpus
    return found


def plan_id(*inputs: bytes) -> str:
    """``plan-`` and 16 hexadecimal digits of a SHA-256 of everything that the plan depends on."""
    digest = hashlib.sha256(b"\n".join(inputs)).hexdigest()
    return f"plan-{digest[:16]}"


@dataclass(frozen=True, slots=True)
class PlacedTarget:
    target: Target
    cpus: CpuSet
    threads: tuple[ThreadKey, ...]
    """The threads at the moment when it was placed; empty while it is not placed yet."""
    unit: str = ""
    """Of a process: its systemd unit identifies it with its name after a restart."""
    command: str = ""
    """Of a process that no service unit names: its command line, for the same purpose."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Drift is measured against it, and later plans of the same request preserve it."""

    host: str
    plan: str
    at: datetime
    request: Request
    roles: Roles
    placed: tuple[PlacedTarget, ...]
    """With some targets that are absent now: they get their old CPUs when they return."""
    since: int
    """The latest start (clock ticks after boot) of any process at that moment: later ones are new."""
    boot: str = ""
    """Empty: not known."""

    @property
    def places(self) -> frozenset[tuple[Target, CpuSet]]:
        return frozenset((each.target, each.cpus) for each in self.placed)
