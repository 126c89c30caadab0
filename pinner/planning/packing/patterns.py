"""The pattern model of a packing: an integer program whose size does not grow with the number of guests.

Alike guests are one class. A pool is a node, or all nodes together where they are alike; then the model is a
relaxation. Each domain of a pool gets a fill pattern: numbers of CPUs that add up to its free CPUs, each a slot for one
piece of a guest. A split makes two pieces of one, which is one more domain for a guest. A shrunk slot leaves one CPU
idle.

The idea is Gilmore and Gomory's for cutting stock (A Linear Programming Approach to the Cutting-Stock Problem, 1961).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pinner.planning.packing.program import Program, ProgramRow
from pinner.planning.packing.values import PackingGuest, PackingNode, Score, Shape, needed_domains

MOST_PATTERNS = 1000
"""Of one shape: enough up to about 20 free CPUs."""


class GuestClass(NamedTuple):
    size: int
    ranks: tuple[tuple[int, int], ...]
    """Of the pools that they may be in."""
    memory: int
    needed: int
    """Domains that hold one of them."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Guests without a place."""

    guests: GuestClass


@dataclass(frozen=True, slots=True)
class InPool:
    """Guests of a class in a pool."""

    pool: int
    guests: GuestClass


@dataclass(frozen=True, slots=True)
class Pattern:
    """Domains of a shape with these slots."""

    pool: int
    shape: Shape
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Into ``part`` CPUs and the rest."""

    pool: int
    size: int
    part: int


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Slots that hold one CPU less."""

    pool: int
    size: int


Column = Unplaced | InPool | Pattern | Split | Shrunk


@dataclass(frozen=True)
class Model(Program):
    columns: tuple[Column, ...]
    members: dict[GuestClass, tuple[str, ...]]
    """By id."""
    pools: tuple[tuple[int, ...], ...]
    """The positions of the nodes of each pool."""


def are_alike(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> bool:
    """Every node is as good for every guest. Memory may still limit them."""
    return all(
        len(guest.ranks) >= len(nodes) and len({guest.ranks.get(node.id) for node in nodes}) == 1 for guest in guests
    )


def build(
    nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], pools: tuple[tuple[int, ...], ...]
) -> Model | None:
    """None where a domain has too many patterns."""
    members = _classes(nodes, guests, pools)
    shapes = [Counter(domain.shape for node in pool for domain in nodes[node].domains if domain.free) for pool in pools]
    if any(_too_many(shape) for found in shapes for shape in found):
        return None
    largest = max((guests.size for guests in members), default=0)
    columns: list[Column] = [Unplaced(each) for each in members]
    for pool, found in enumerate(shapes):
        columns += [InPool(pool, each) for each in members if pool in dict(each.ranks)]
        columns += [Pattern(pool, shape, slots) for shape in found for slots in _fillings(shape)]
        top = max((shape.free for shape in found), default=0)
        columns += _splits(pool, largest, top)
        columns += [Shrunk(pool, size) for size in range(1, top + 1)]
    rows = tuple(_rows(nodes, columns, members, shapes, pools))
    costs = tuple(zip(*(_cost(column) for column in columns), strict=True)) if columns else ((), (), (), ())
    extra = sum(-(each.needed - 1) * len(names) for each, names in members.items() if each.needed)
    return Model(rows, costs, Score(0, 0, 0, extra), tuple(columns), members, pools)


@lru_cache(maxsize=256)
def partitions(total: int, largest: int) -> tuple[tuple[int, ...], ...]:
    """Sums of numbers of at most ``largest``, each in descending order."""
    if not total:
        return ((),)
    return tuple(
        (first, *rest) for first in range(min(total, largest), 0, -1) for rest in partitions(total - first, first)
    )


def _fillings(shape: Shape) -> Iterator[tuple[int, ...]]:
    """CPUs of begun cores may stay idle; other idle CPUs cost nothing in a slot."""
    for total in range(shape.free - shape.begun, shape.free + 1):
        yield from partitions(total, total)


def _too_many(shape: Shape) -> bool:
    """The numbers of partitions by Euler's product."""
    ways = [1] + [0] * shape.free
    for part in range(1, shape.free + 1):
        for total in range(part, shape.free + 1):
            ways[total] += ways[total - part]
    return ways[shape.free] > MOST_PATTERNS


def _classes(
    nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], pools: tuple[tuple[int, ...], ...]
) -> dict[GuestClass, tuple[str, ...]]:
    found: dict[GuestClass, list[str]] = {}
    for guest in guests:
        ranks = tuple(
            (number, guest.ranks[nodes[pool[0]].id])
            for number, pool in enumerate(pools)
            if nodes[pool[0]].id in guest.ranks
        )
        each = GuestClass(guest.size, ranks, guest.memory, needed_domains(nodes, guest.size, guest.ranks))
        found.setdefault(each, []).append(guest.id)
    return {each: tuple(sorted(found[each])) for each in sorted(found, reverse=True)}


def _splits(pool: int, largest: int, top: int) -> Iterator[Split]:
    """Of a piece larger than every domain, only a part that fits one is taken off."""
    for size in range(2, largest + 1):
        for part in range(1, min(size // 2, top) + 1):
            yield Split(pool, size, part)


def _rows(
    nodes: Sequence[PackingNode],
    columns: list[Column],
    members: dict[GuestClass, tuple[str, ...]],
    shapes: list[Counter[Shape]],
    pools: tuple[tuple[int, ...], ...],
) -> Iterator[ProgramRow]:
    """Each guest is placed or not, each domain has one pattern, each piece has a slot, only existing pieces are split,
    and memory fits."""
    found: dict[_Limit, list[tuple[int, float]]] = {}
    for position, column in enumerate(columns):
        for limit, factor in _terms(column):
            found.setdefault(limit, []).append((position, factor))
    for limit, entries in found.items():
        match limit:
            case GuestClass():
                yield ProgramRow(tuple(entries), len(members[limit]), len(members[limit]))
            case _Domains(pool, shape):
                yield ProgramRow(tuple(entries), 0, shapes[pool][shape])
            case _Pieces() | _Splits():
                yield ProgramRow(tuple(entries), float("-inf"), 0)
            case _Memory(pool):
                limits = [nodes[node].memory for node in pools[pool]]
                if None not in limits:
                    yield ProgramRow(tuple(entries), 0, sum(limit for limit in limits if limit is not None))


@dataclass(frozen=True, slots=True)
class _Domains:
    pool: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class _Pieces:
    """That still need a slot."""

    pool: int
    size: int


@dataclass(frozen=True, slots=True)
class _Splits:
    """Beyond the pieces of this size."""

    pool: int
    split: int


@dataclass(frozen=True, slots=True)
class _Memory:
    pool: int


_Limit = GuestClass | _Domains | _Pieces | _Splits | _Memory


def _terms(column: Column) -> Iterator[tuple[_Limit, float]]:
    match column:
        case Unplaced(guests):
            yield guests, 1
        case InPool(pool, guests):
            yield guests, 1
            yield _Pieces(pool, guests.size), 1
            yield _Splits(pool, guests.size), -1
            if guests.memory:
                yield _Memory(pool), guests.memory
        case Pattern(pool, shape, slots):
            yield _Domains(pool, shape), 1
            for size, number in Counter(slots).items():
                yield _Pieces(pool, size), -number
        case Split(pool, size, part):
            yield _Pieces(pool, size), -1
            yield _Splits(pool, size), 1
            for piece, number in Counter((part, size - part)).items():
                yield _Pieces(pool, piece), number
                yield _Splits(pool, piece), -number
        case Shrunk(pool, size):
            yield _Pieces(pool, size), 1
            if size > 1:
                yield _Pieces(pool, size - 1), -1


def _cost(column: Column) -> Score:
    match column:
        case Unplaced(guests):
            return Score(1, 0, 0, max(guests.needed - 1, 0))
        case InPool(pool, guests):
            return Score(0, dict(guests.ranks)[pool], 0, 0)
        case Pattern(_, shape, slots):
            return Score(0, 0, shape.shared(slots), 0)
        case Split():
            return Score(0, 0, 0, 1)
        case Shrunk():
            return Score(0, 0, 0, 0)
