"""Questions that change nothing, and their answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from pinner.model.change import Target
from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import Invalid
from pinner.model.plan.plan import LeftOut
from pinner.model.plan.request import Request
from pinner.model.policy import Mode

MAX_NEW_GUESTS = 1024
MAX_NEW_VCPUS = 16384
"""Of all new guests."""
MAX_MEMORY_KIB = 1 << 40
"""1 PiB, more than any host has."""


@dataclass(frozen=True, slots=True)
class GuestShape:
    """A guest's size. Raises Invalid where no guest can have it."""

    vcpus: int
    """The number of vCPUs."""
    memory_kib: int = 0
    """KiB; 0: memory does not count."""
    page_kib: int = 0
    """KiB of a huge page, only beside ``memory_kib``; 0: normal pages."""

    def __post_init__(self) -> None:
        if not 1 <= self.vcpus <= MAX_CPUS:
            raise Invalid("vcpus", self.vcpus, f"a number of vCPUs from 1 to {MAX_CPUS}")
        for name in ("memory_kib", "page_kib"):
            if not 0 <= getattr(self, name) <= MAX_MEMORY_KIB:
                raise Invalid(name, getattr(self, name), f"a number of KiB from 0 to {MAX_MEMORY_KIB}")
        if self.page_kib and not self.memory_kib:
            raise Invalid("page_kib", self.page_kib, "0, or a value beside memory_kib: the size of the memory's pages")


@dataclass(frozen=True, slots=True)
class NewGuests:
    """Raises Invalid for an impossible number."""

    shape: GuestShape
    count: int = 1
    """The number of guests."""
    strategy: str = ""
    """The strategy that their flavor asks for; empty: none."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_NEW_GUESTS:
            raise Invalid("count", self.count, f"a number of guests from 1 to {MAX_NEW_GUESTS}")


@dataclass(frozen=True, slots=True)
class Scenario:
    add: tuple[NewGuests, ...] = ()
    remove: tuple[str, ...] = ()
    """Names or UUIDs."""
    without_nodes: tuple[int, ...] = ()
    without_cpus: CpuSet = CpuSet()
    """Switched off."""
    request: Request | None = None
    """None: the same one."""


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """What a plan does for a host, or why there is none."""

    strategy: str
    guests: int
    """Number of guests that the plan places."""
    unplaced: tuple[LeftOut, ...]
    """Guests without a place, and why."""
    now: Mapping[str, float]
    """The objective's terms before an apply, without the cost of the change."""
    planned: Mapping[str, float]
    """The objective's terms after the plan is applied, without the cost of the change."""
    warnings: tuple[str, ...] = ()
    blocked: str = ""
    impossible: str = ""
    """Why there is no plan, and so no numbers; else empty."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The plans for a host as it is, and after the changes of a scenario."""

    host: str
    taken_at: datetime
    before: ScenarioOutcome
    after: ScenarioOutcome
    change: Mapping[str, float]
    """How much higher each term is after than before, as planned."""
    moved: tuple[Target, ...] = ()
    """Guests that both plans place, on different CPUs."""


AlternativeKind = Literal["node", "l3", "now"]
"""node, l3: the vCPUs only on this NUMA node, or on CPUs that share this level-3 cache; now: the guest as it is."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another place for a guest, compared with the plan."""

    kind: AlternativeKind
    """The kind."""
    node: int | None
    """Id of the NUMA node; null for another kind."""
    cpus: CpuSet
    """CPUs that the guest's vCPUs would use; where that is impossible, those of the place."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """How much higher each term of the objective that differs would be."""
    moved: tuple[Target, ...] = ()
    """Other guests with other CPUs."""
    unplaced: tuple[LeftOut, ...] = ()
    """Other guests without a place."""
    impossible: str = ""
    """Why the guest cannot be there, so that there is no cost; else empty."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan gives a guest its CPUs, and what other places cost."""

    guest: Target
    cpus: CpuSet
    """Its vCPUs' CPUs; empty where the plan gives it none."""
    nodes: tuple[int, ...]
    why: tuple[str, ...]
    """The plan's reasons, or why it does not place the guest."""
    terms: Mapping[str, float]
    """Without the cost of the change."""
    alternatives: tuple[Alternative, ...] = ()
    """Other places, with their costs."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """One strategy's room on one NUMA node."""

    node: int | None
    """Its id; null where the kernel reports no nodes."""
    cpus: CpuSet
    """CPUs of the node for the strategy's vCPUs."""
    free_vcpus: int
    """How many more vCPUs can have one of these CPUs. One that floats over nodes counts on each by its share."""
    memory_kib: int | None = None
    """Local to the node; null: not reported. A strategy that keeps guests on one node places no larger one here."""
    guests: Mapping[int, int] = field(default_factory=dict)
    """Number of vCPUs to how many more guests of this size fit."""


@dataclass(frozen=True, slots=True)
class StrategyCapacity:
    """A strategy's room for guests."""

    strategy: str
    """The host's, or one that a flavor asks for (pinner:strategy)."""
    within_node: bool
    """Whether it keeps all vCPUs of a guest on one node, where one can be wide enough."""
    free_vcpus: int
    """How many more vCPUs can have a CPU; with within_node, the sum of the nodes."""
    nodes: tuple[NodeCapacity, ...] = ()
    """Each node's room, by id."""
    guests: Mapping[int, int] = field(default_factory=dict)
    """Number of vCPUs to how many more guests of this size fit."""
    why: str = ""
    """Why it can place no guest now; else empty."""
    widest: int | None = None
    """Most vCPUs that a guest can have on an empty node: one of more spans several. Null: no guest of this strategy
    spans nodes, or it does not keep guests on one node."""


@dataclass(frozen=True, slots=True)
class ShapeRoom:
    """Room for guests of one shape, found by planning them."""

    strategy: str
    """The host's, or one that a flavor asks for."""
    guests: int
    """So many more get a place: no placed guest moves, no vCPU shares a CPU that had one vCPU or none, and the host has
    memory for all of them."""
    why: str
    """Why one more has no place."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """A host's room beside its placed guests: no vCPU shares a CPU, and no placed guest moves."""

    host: str
    taken_at: datetime
    """Up to two seconds before the request."""
    mode: Mode | None
    """The policy's; null: there is none, and a guest is placed when a plan is applied."""
    strategy: str
    """That of guests whose flavor asks for none: the policy's, else that of the last applied plan, else the default."""
    strategies: tuple[StrategyCapacity, ...]
    """They count CPUs only, so they are never below ``fitting``."""
    shape: GuestShape | None = None
    """The shape of the guests in ``fitting``; null: the caller named no memory."""
    fitting: tuple[ShapeRoom, ...] = ()
    """Room for guests of this shape by strategy, sorted by name."""


def fitting(each: StrategyCapacity, vcpus: int) -> int:
    if each.within_node and (each.widest is None or vcpus <= each.widest):
        return sum(node.free_vcpus // vcpus for node in each.nodes)
    return each.free_vcpus // vcpus


def with_sizes(capacity: Capacity, sizes: tuple[int, ...]) -> Capacity:
    return replace(capacity, strategies=tuple(_with_sizes(each, sizes) for each in capacity.strategies))


def _with_sizes(each: StrategyCapacity, sizes: tuple[int, ...]) -> StrategyCapacity:
    nodes = tuple(replace(node, guests={size: node.free_vcpus // size for size in sizes}) for node in each.nodes)
    return replace(each, nodes=nodes, guests={size: fitting(each, size) for size in sizes})
