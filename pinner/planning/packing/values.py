"""The values of a packing: nodes of L3 domains of cores, and guests. CPUs are bits of an integer. A core is shared if
two guests have CPUs of it."""

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import NodeId


class Core(NamedTuple):
    free: int
    begun: bool = False
    """A guest that stays has others of it."""


@dataclass(frozen=True)
class PackingDomain:
    """A level-3 cache's; without caches, a node's."""

    cores: tuple[Core, ...]
    free: int = field(init=False, repr=False, compare=False)
    width: int = field(init=False, repr=False, compare=False)
    """Most free CPUs of a core that no guest has begun."""
    whole: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Wholly free cores."""
    loose: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Of narrower cores."""
    begun: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Of cores where a guest that stays has others."""

    def __post_init__(self) -> None:
        begun = tuple([core.free for core in self.cores if core.begun and core.free])
        others = [core.free for core in self.cores if not core.begun and core.free]
        width = max(map(int.bit_count, others), default=1)
        vars(self).update(
            free=sum(map(int.bit_count, begun)) + sum(map(int.bit_count, others)),
            width=width,
            whole=tuple([free for free in others if free.bit_count() == width]),
            loose=tuple([free for free in others if free.bit_count() < width]),
            begun=begun,
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.cores)

    def core_of(self, part: int) -> int:
        return next(number for number, core in enumerate(self.cores) if core.free & part)

    @cached_property
    def shape(self) -> "Shape":
        loose, begun = (sum(map(int.bit_count, cores)) for cores in (self.loose, self.begun))
        return Shape(len(self.whole), loose, begun, self.width)


class Shape(NamedTuple):
    whole: int
    """Cores."""
    loose: int
    """CPUs."""
    begun: int
    """CPUs."""
    width: int

    @property
    def free(self) -> int:
        return self.whole * self.width + self.loose + self.begun

    def shared(self, pieces: Sequence[int]) -> int:
        """Fewest shared cores where these numbers of CPUs go to one guest each."""
        full = sum(piece // self.width for piece in pieces)
        rests = sum(1 for piece in pieces if piece % self.width)
        alone = min(rests, self.loose)
        full -= (self.loose - alone) // self.width
        return max(0, full + rests - alone - self.whole) + (self.width - 1) * max(0, full - self.whole)


@dataclass(frozen=True)
class PackingNode:
    id: NodeId
    domains: tuple[PackingDomain, ...]
    memory: int | None = None
    """KiB; None: not known, no limit."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.id, self.domains, self.memory))

    @cached_property
    def free(self) -> int:
        return sum(domain.free for domain in self.domains)

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """Of 1, 2, ... domains together."""
        return tuple(accumulate(sorted((domain.free for domain in self.domains), reverse=True)))

    @cached_property
    def homes(self) -> Mapping[int, tuple[int, int]]:
        """Free CPU to its domain's and its core's position."""
        return {
            cpu: (position, number)
            for position, domain in enumerate(self.domains)
            for number, core in enumerate(domain.cores)
            for cpu in CpuSet(core.free)
        }

    @cached_property
    def begun(self) -> frozenset[tuple[int, int]]:
        """The same of cores where a guest that stays has CPUs."""
        return frozenset(
            (position, number)
            for position, domain in enumerate(self.domains)
            for number, core in enumerate(domain.cores)
            if core.begun
        )


@dataclass(frozen=True)
class PackingGuest:
    id: str
    size: int
    ranks: Mapping[NodeId, int]
    """By possible node; 0 is the best."""
    memory: int = 0
    """KiB."""

    def __hash__(self) -> int:
        return hash((self.id, self.size, self.memory))

    @cached_property
    def best(self) -> frozenset[NodeId]:
        lowest = min(self.ranks.values(), default=0)
        return frozenset(node for node, rank in self.ranks.items() if rank == lowest)


class Piece(NamedTuple):
    node: int
    """Its position."""
    domain: int
    """Its position on the node."""
    cpus: int


Layout = Mapping[str, tuple[Piece, ...]]


class Score(NamedTuple):
    """Lower is better; the earlier number counts first."""

    unplaced: int
    rank: int
    shared: int
    extra_l3: int
    """Domains that guests span beyond the fewest."""


def needed_domains(nodes: Sequence[PackingNode], size: int, possible: Container[NodeId]) -> int:
    """Fewest domains that hold a guest of this size before the packing; 0 where no possible node can."""
    fewest = 0
    for node in nodes:
        if node.id in possible and (count := bisect_left(node.reach, size)) < len(node.reach):
            fewest = min(fewest or count + 1, count + 1)
    return fewest
