"""A plan; and the placement that is recorded after an apply."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.change import PlannedChange, Target, ThreadKey
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.objective import Objective, Optimality, Term
from pinner.model.plan.request import Request
from pinner.model.states import State


@dataclass(frozen=True, slots=True)
class Wanted:
    """The CPUs that a plan gives to a target, whether they change or not."""

    target: Target
    cpus: CpuSet
    """Where its threads may run."""
    reason: str
    """Why it gets these CPUs."""
    state: State | None = None
    """Null: the target has threads."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The CPU sets. On a small host they share CPUs."""

    housekeeping: CpuSet
    """CPUs of the host's busy processes."""
    emulator: CpuSet
    """CPUs of QEMU's own threads."""
    vcpu: CpuSet
    """CPUs of vCPUs."""
    notes: tuple[str, ...] = ()
    """Which sets share CPUs, and why."""

    @property
    def cpus(self) -> CpuSet:
        return self.housekeeping | self.emulator | self.vcpu


NO_ROLES = Roles(CpuSet(), CpuSet(), CpuSet())


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A guest, a process or some of its threads that the plan does not touch."""

    target: Target
    why: str
    """The reason, with its numbers."""
    threads: tuple[int, ...] = ()
    """Ids of threads that are left out while the target's others are placed; empty: the whole target."""

    @property
    def label(self) -> str:
        """For people. Code compares ``target`` and ``threads``."""
        return f"{self.target} thread {', '.join(map(str, self.threads))}" if self.threads else str(self.target)


@dataclass(frozen=True, slots=True)
class Isolation:
    """Kernel settings that the strategy ``isolated`` needs."""

    wanted: CpuSet
    """CPUs that the kernel should isolate."""
    present: CpuSet
    """Those that are isolated now."""
    kernel_arguments: str
    """isolcpus=managed_irq,domain,LIST nohz_full=LIST rcu_nocbs=LIST, with this boot's flags and CPUs. Empty: Nova's
    floating guests may use the wanted CPUs."""
    grub_line: str
    """The line for /etc/default/grub with the current arguments; empty: there are none, or a capture lacks values."""
    partition: tuple[str, ...]
    """Shell commands that isolate the wanted CPUs live in a cgroup v2 partition; empty: the kernel has none."""
    partition_note: str
    """Effects and limits of the live form, or why this host cannot have it."""


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """The nodes of a guest's memory. Memory is remote to a vCPU on another node. Each vCPU counts as spread evenly over
    its CPUs; the remote memory is the mean over all vCPUs."""

    target: Target
    """Of kind memory."""
    per_node: Mapping[int, int]
    """Node id to resident KiB of QEMU."""
    remote_now_kib: int
    """KiB on nodes without its vCPUs now."""
    remote_kib: int
    """Remote KiB under the plan, before any memory moves."""
    home: int | None
    """The node on which the plan places all its vCPUs, to which its memory can move. Null: several nodes, or the host
    has no other node with memory."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The snapshot that a plan was made from."""

    snapshot: str
    """The hash of the snapshot's content."""
    taken_at: datetime
    fingerprint: str
    """The fingerprint of the host's topology."""
    boot: str = ""
    cpu_limits: Mapping[str, tuple[CpuLimit, ...]] = field(
        default_factory=dict, metadata={"exclude_if": lambda limits: not limits}
    )
    """The limits of the guests that have some, by UUID."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Placing all guests anew, compared with leaving well placed guests where they are."""

    guests: int
    """Number of guests that get other CPUs."""
    threads: int
    """Number of their threads that move."""
    gain: float
    """How much lower the objective's decisive tier gets: the first one that changes."""
    taken: bool
    """Whether the plan places all guests anew; where that gains nothing, well placed guests stay."""
    terms: tuple[Term, ...] = ()
    """Terms of the decisive tier that change: before = well placed guests stay, after = all are placed anew."""


@dataclass(frozen=True, slots=True)
class Move:
    """A placed guest that gets another place, because of a new guest."""

    guest: Target
    terms: tuple[Term, ...] = ()
    """The gain: terms of the decisive tier that change, without and with the move. Empty for a guest that makes room
    for one without a place. Guests that move together have the same terms."""


Purpose = Literal["place", "release"]
"""release: the plan restores a guest's prior affinities and allocates nothing, so other owners do not limit it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A placement, computed from one snapshot by pure code: the same snapshot and request give the same plan."""

    id: str
    """A hash of its snapshot and request."""
    host: str
    request: Request
    basis: Basis
    roles: Roles
    wanted: tuple[Wanted, ...]
    """Every placed target, also one that has its CPUs already."""
    changes: tuple[PlannedChange, ...]
    """What the host still needs."""
    unplaced: tuple[LeftOut, ...]
    """Guests without a place; of a placement by hand, parts of guests and processes."""
    skipped: tuple[LeftOut, ...]
    """Processes, threads and guests that pinner does not move."""
    warnings: tuple[str, ...]
    objective: Objective = field(default_factory=Objective)
    """Now and after an apply."""
    isolation: Isolation | None = None
    """What `isolated` needs from the kernel; null for other strategies."""
    blocked: str = field(default="")
    memory: tuple[GuestMemory, ...] = ()
    """The memory of each guest for which the kernel reports it by node."""
    rebalance: Rebalance | None = None
    """Its cost and gain, where the request asks for one."""
    moves: tuple[Move, ...] = ()
    """Guests that move because of new guests, at most as many as the request allows."""
    optimality: Optimality | None = None
    """How good the allocation of CPUs is, by `exclusive`, `isolated` and `optimal`; null for others."""
    purpose: Purpose = "place"
    """place: to place guests; release: to give a guest its earlier CPUs back."""
    contested: CpuSet = CpuSet()
    """CPUs for one vCPU each that the plan hands out although a vCPU that stays was pinned there when it was made."""
    worse: str = field(default="", metadata={"exclude_if": lambda why: not why})
    """The tier of the objective that an apply would make worse, with its numbers, and what is better. Such a plan is
    applied only where that is allowed. JSON leaves it out where no tier gets worse."""

    @property
    def is_release(self) -> bool:
        return self.purpose == "release"


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A plan in a list, without its changes."""

    id: str
    host: str
    strategy: str
    created_at: datetime
    """When it was stored."""
    changes: int
    """Number of changes."""
    unplaced: int
    """Number of guests without a place."""
    blocked: str


CpusByGuest = Mapping[str, Mapping[int, CpuSet]]
"""UUID, then the vCPU's number."""


def vcpus_by_guest(wanted: Iterable[Wanted]) -> dict[str, dict[int, CpuSet]]:
    cpus: dict[str, dict[int, CpuSet]] = {}
    for want in wanted:
        if want.target.kind == "vcpu" and want.target.part is not None:
            cpus.setdefault(want.target.owner, {})[want.target.part] = want.cpus
    return cpus


def plan_id(*inputs: bytes) -> str:
    digest = hashlib.sha256(b"\n".join(inputs)).hexdigest()
    return f"plan-{digest[:16]}"


@dataclass(frozen=True, slots=True)
class PlacedTarget:
    target: Target
    cpus: CpuSet
    threads: tuple[ThreadKey, ...]
    """Those when it was placed; empty: not placed yet, or not since."""
    unit: str = ""
    """Of a process: after a restart, its systemd unit identifies it with its name."""
    command: str = ""
    """Of a process without a service unit, for the same purpose."""
    state: State | None = field(default=None, metadata={"exclude_if": lambda state: state is None})
    """The one that a plan gave to a setting inside a guest; else null."""
    returns: bool = field(default=False, metadata={"exclude_if": lambda returns: not returns})
    """It has been on these CPUs: in an earlier boot, or before its last placing failed. JSON leaves out false."""

    @property
    def was_placed(self) -> bool:
        return bool(self.threads) or self.returns


@dataclass(frozen=True, slots=True)
class Placement:
    """Drift is measured against it; later plans of the same request preserve it."""

    host: str
    plan: str
    at: datetime
    request: Request
    roles: Roles
    placed: tuple[PlacedTarget, ...]
    """With absent targets, which get their old CPUs when they return."""
    since: int
    """Latest start (clock ticks after boot) of any process then: later ones are new."""
    boot: str = ""
    """Empty: not known."""

    @property
    def places(self) -> frozenset[tuple[Target, CpuSet]]:
        return frozenset((each.target, each.cpus) for each in self.placed)
