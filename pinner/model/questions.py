"""Questions that change nothing, and their answers: the room for more guests, and what would be if."""

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
"""Of all new guests together."""
MAX_MEMORY_KIB = 1 << 40
"""1 PiB: more than any host has."""


@dataclass(frozen=True, slots=True)
class GuestShape:
    """The size of a guest. Raises Invalid where no guest can have it."""

    vcpus: int
    """The number of vCPUs."""
    memory_kib: int = 0
    """The memory in KiB; 0: memory does not count."""
    page_kib: int = 0
    """The size in KiB of the huge pages of its memory; 0: normal pages."""

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
    strategy: str = ""
    """Of their flavor; empty: none."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_NEW_GUESTS:
            raise Invalid("count", self.count, f"a number of guests from 1 to {MAX_NEW_GUESTS}")


@dataclass(frozen=True, slots=True)
class Scenario:
    """How the host of the question differs."""

    add: tuple[NewGuests, ...] = ()
    remove: tuple[str, ...] = ()
    """Names or UUIDs."""
    without_nodes: tuple[int, ...] = ()
    """With their CPUs and memory."""
    without_cpus: CpuSet = CpuSet()
    """Switched off."""
    request: Request | None = None
    """Null: the same one."""


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """The plan for one host, in numbers."""

    strategy: str
    """The name of the strategy."""
    guests: int
    """The number of guests that the plan places."""
    unplaced: tuple[LeftOut, ...]
    """The guests without a place, and why."""
    now: Mapping[str, float]
    """The terms of the plan's objective before the plan is applied, without the cost of the change."""
    planned: Mapping[str, float]
    """The terms of the plan's objective after the plan is applied, without the cost of the change."""
    warnings: tuple[str, ...] = ()
    """What an operator should know before an apply."""
    blocked: str = ""
    """Why the plan could not be applied; empty where it could."""
    impossible: str = ""
    """Why there is no plan at all; empty where there is one. Then there are no numbers."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The plan for a host, and the plan for the host of a question."""

    host: str
    """The name of the host."""
    taken_at: datetime
    """The time of the snapshot."""
    before: ScenarioOutcome
    """The plan for the host as it is."""
    after: ScenarioOutcome
    """The plan for the host of the question."""
    change: Mapping[str, float]
    """For each term, how much higher it is after than before, as planned."""
    moved: tuple[Target, ...] = ()
    """The guests that both plans place, on different CPUs."""


AlternativeKind = Literal["node", "l3", "now"]
"""node, l3: the vCPUs only on this NUMA node, or on CPUs that share this level-3 cache; now: the guest as it is."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another place for a guest, and its cost compared with the plan."""

    kind: AlternativeKind
    """What the place is."""
    node: int | None
    """The id of the NUMA node; null for another kind."""
    cpus: CpuSet
    """The CPUs that the guest's vCPUs would use; where that is impossible, the CPUs of the place."""
    cost: Mapping[str, float] = field(default_factory=dict)
    """For each term of the objective that would differ: how much higher it would be."""
    moved: tuple[Target, ...] = ()
    """Other guests that would get other CPUs."""
    unplaced: tuple[LeftOut, ...] = ()
    """Other guests that would have no place."""
    impossible: str = ""
    """Why the guest cannot be there; empty where it can. Then there is no cost."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a plan gives a guest its CPUs."""

    guest: Target
    """The guest."""
    cpus: CpuSet
    """The CPUs of its vCPUs; empty where the plan gives it none."""
    nodes: tuple[int, ...]
    """The NUMA nodes of these CPUs."""
    why: tuple[str, ...]
    """The reasons of the plan, or why it does not place the guest."""
    terms: Mapping[str, float]
    """The terms of the plan's objective, without the cost of the change."""
    alternatives: tuple[Alternative, ...] = ()
    """The other places, with their costs."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The room of one strategy on one NUMA node."""

    node: int | None
    """The id of the node; null where the kernel reports no nodes."""
    cpus: CpuSet
    """The CPUs of the node for vCPUs of this strategy."""
    free_vcpus: int
    """How many more vCPUs can have a CPU of these. A vCPU that floats over several nodes counts on each of them by its
    share of the CPUs."""
    memory_kib: int | None = None
    """The memory that is local to the node; null where the kernel reports none. pinner places no guest of more memory
    here with a strategy that keeps a guest on one node."""
    guests: Mapping[int, int] = field(default_factory=dict)
    """By number of vCPUs: how many more guests of this size fit the node."""


@dataclass(frozen=True, slots=True)
class StrategyCapacity:
    """The room for guests that a strategy places."""

    strategy: str
    """The name of the strategy: the host's one, or the one that a flavor asks for (pinner:strategy)."""
    within_node: bool
    """Whether the strategy keeps all vCPUs of a guest on one node, as far as one node can be wide enough."""
    free_vcpus: int
    """How many more vCPUs can have a CPU; with within_node, the sum of the nodes."""
    nodes: tuple[NodeCapacity, ...] = ()
    """The room of each node, sorted by id."""
    guests: Mapping[int, int] = field(default_factory=dict)
    """By number of vCPUs: how many more guests of this size fit the host."""
    why: str = ""
    """Why the strategy can place no guest now; empty where it can."""
    widest: int | None = None
    """The most vCPUs that a guest on one node can have, were the node empty: a guest of more spans several nodes. Null:
    no guest of this strategy spans nodes, or the strategy does not keep guests on one node."""


@dataclass(frozen=True, slots=True)
class ShapeRoom:
    """How many more guests of one shape a strategy places, found by planning them."""

    strategy: str
    """The name of the strategy: the host's one, or the one that a flavor asks for (pinner:strategy)."""
    guests: int
    """So many more guests of this shape get a place. No placed guest moves, no vCPU shares a CPU that had one vCPU or
    none, and the host has memory for all of them."""
    why: str
    """Why one more has no place."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The room of a host beside the guests that are placed now: no vCPU shares a CPU, and no placed guest moves."""

    host: str
    """The name of the host."""
    taken_at: datetime
    """The time of the observation; up to two seconds before the request."""
    mode: Mode | None
    """The mode of the host's policy; null: the host has no policy, and a guest is placed when a plan is applied."""
    strategy: str
    """The host's strategy, for guests whose flavor asks for none: that of the policy, or else of the last applied plan,
    or else the default."""
    strategies: tuple[StrategyCapacity, ...]
    """The room by strategy, sorted by name. It counts CPUs only, so it is never below ``fitting``."""
    shape: GuestShape | None = None
    """The shape of the guests in ``fitting``; null: the caller named no memory."""
    fitting: tuple[ShapeRoom, ...] = ()
    """The room for guests of this shape by strategy, sorted by name."""


def fitting(each: StrategyCapacity, vcpus: int) -> int:
    """How many more guests of so many vCPUs fit."""
    if each.within_node and (each.widest is None or vcpus <= each.widest):
        return sum(node.free_vcpus // vcpus for node in each.nodes)
    return each.free_vcpus // vcpus


def with_sizes(capacity: Capacity, sizes: tuple[int, ...]) -> Capacity:
    """``sizes`` are numbers of vCPUs, 1 or more."""
    return replace(capacity, strategies=tuple(_with_sizes(each, sizes) for each in capacity.strategies))


def _with_sizes(each: StrategyCapacity, sizes: tuple[int, ...]) -> StrategyCapacity:
    nodes = tuple(replace(node, guests={size: node.free_vcpus // size for size in sizes}) for node in each.nodes)
    return replace(each, nodes=nodes, guests={size: fitting(each, size) for size in sizes})
