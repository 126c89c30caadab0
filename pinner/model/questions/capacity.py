"""The room of a host: how many more guests pinner can place beside the present ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pinner.model.cpuset import CpuSet
from pinner.model.policy.policy import Mode
from pinner.model.questions.whatif import GuestShape


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
