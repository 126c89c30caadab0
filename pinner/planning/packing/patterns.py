"""The pattern model of a packing: an integer program whose size does not grow with the number of guests.

Alike guests are one class. A pool is a node, or all nodes together where they are alike, which makes the model a
relaxation. Each domain of a pool gets a fill pattern: numbers of CPUs that add up to its free CPUs, each a slot for one
piece of a guest. A split makes two pieces of one, which is one more domain for a guest. A shrunk slot leaves one CPU
idle.

The idea is Gilmore and Gomory's for cutting stock (A Linear Programming Approach to the Cutting-Stock Problem, 1961).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from pinner.planning.packing.program import Program, ProgramRow
from pinner.planning.packing.values import Layout, PackingGuest, PackingNode, Piece, Score, Shape, needed_domains

MOST_PATTERNS = 1000
"""Of one shape: enough up to about 20 free CPUs."""


class GuestClass(NamedTuple):
    size: int
    ranks: tuple[tuple[int, int], ...]
    memory: int
    needed: int


@dataclass(frozen=True, slots=True)
class Unplaced:
    guests: GuestClass


@dataclass(frozen=True, slots=True)
class InPool:
    pool: int
    guests: GuestClass


@dataclass(frozen=True, slots=True)
class Pattern:
    pool: int
    shape: Shape
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    pool: int
    size: int
    part: int


@dataclass(frozen=True, slots=True)
class Shrunk:
    pool: int
    size: int


Column = Unplaced | InPool | Pattern | Split | Shrunk


@dataclass(frozen=True)
class Model(Program):
    columns: tuple[Column, ...]
    members: dict[GuestClass, tuple[str, ...]]
    pools: tuple[tuple[int, ...], ...]


def are_alike(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> bool:
    return all(
        len(guest.ranks) >= len(nodes) and len({guest.ranks.get(node.id) for node in nodes}) == 1 for guest in guests
    )


def build(
    nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], pools: tuple[tuple[int, ...], ...]
) -> Model | None:
    """None where a domain has too many patterns."""
    members = _classes(nodes, guests, pools)
    shapes = [Counter(domain.shape for node in pool for domain in nodes[node].domains if domain.free) for pool in pools]
    if any(_too_many(shape) for of_pool in shapes for shape in of_pool):
        return None
    largest = max((guests.size for guests in members), default=0)
    columns: list[Column] = [Unplaced(each) for each in members]
    for pool, of_pool in enumerate(shapes):
        columns += [InPool(pool, each) for each in members if pool in dict(each.ranks)]
        columns += [Pattern(pool, shape, slots) for shape in of_pool for slots in _fillings(shape)]
        top = max((shape.free for shape in of_pool), default=0)
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
    """By Euler's product."""
    ways = [1] + [0] * shape.free
    for part in range(1, shape.free + 1):
        for total in range(part, shape.free + 1):
            ways[total] += ways[total - part]
    return ways[shape.free] > MOST_PATTERNS


def _classes(
    nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], pools: tuple[tuple[int, ...], ...]
) -> dict[GuestClass, tuple[str, ...]]:
    classes: dict[GuestClass, list[str]] = {}
    for guest in guests:
        ranks = tuple(
            (number, guest.ranks[nodes[pool[0]].id])
            for number, pool in enumerate(pools)
            if nodes[pool[0]].id in guest.ranks
        )
        kind = GuestClass(guest.size, ranks, guest.memory, needed_domains(nodes, guest.size, guest.ranks))
        classes.setdefault(kind, []).append(guest.id)
    return {kind: tuple(sorted(classes[kind])) for kind in sorted(classes, reverse=True)}


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
    rows: dict[_Limit, list[tuple[int, float]]] = {}
    for position, column in enumerate(columns):
        for limit, factor in _terms(column):
            rows.setdefault(limit, []).append((position, factor))
    for limit, entries in rows.items():
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
    pool: int
    size: int


@dataclass(frozen=True, slots=True)
class _Splits:
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


_Counts = Mapping[Column, int]


@dataclass
class _Filled:
    pool: int
    shape: Shape
    cluster: int
    """Domains of one cluster must be on one node: a guest spans them."""
    pieces: list[tuple[str, int]] = field(default_factory=list)


def realised(model: Model, nodes: Sequence[PackingNode], values: Sequence[int]) -> Layout | None:
    """None where domains that a guest spans do not fit one node of the pool."""
    counts = {column: value for column, value in zip(model.columns, values, strict=True) if value}
    pieces: dict[str, list[Piece]] = {}
    waiting = dict(model.members)
    for pool, positions in enumerate(model.pools):
        owners = []
        for column, count in counts.items():
            if isinstance(column, InPool) and column.pool == pool:
                names = waiting[column.guests]
                owners += [(name, column.guests.size) for name in names[:count]]
                waiting[column.guests] = names[count:]
        domains = _filled(counts, pool, owners)
        homes = _homes(domains, nodes, positions)
        if homes is None:
            return None
        for domain, (node, position) in zip(domains, homes, strict=True):
            for name, cpus in domain.pieces:
                pieces.setdefault(name, []).append(Piece(node, position, cpus))
    return {name: tuple(sorted(_joined(of_guest))) for name, of_guest in pieces.items()}


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    total: Counter[tuple[int, int]] = Counter()
    for piece in pieces:
        total[piece.node, piece.domain] += piece.cpus
    for (node, domain), cpus in total.items():
        yield Piece(node, domain, cpus)


def _filled(counts: _Counts, pool: int, owners: list[tuple[str, int]]) -> list[_Filled]:
    domains: list[_Filled] = []
    slots: dict[int, list[_Filled]] = {}
    for column, count in counts.items():
        if isinstance(column, Pattern) and column.pool == pool:
            for _ in range(count):
                domains.append(_Filled(pool, column.shape, len(domains)))
                for slot in column.slots:
                    slots.setdefault(slot, []).append(domains[-1])
    _shrink(counts, pool, slots)
    items = _split(counts, pool, owners)
    number = Counter(name for names in items.values() for name in names)
    spanning = sorted((-number[name], name, size) for size, names in items.items() for name in names)
    for _, name, size in spanning:
        _give(slots[size], domains, name, size)
    return domains


def _shrink(counts: _Counts, pool: int, slots: dict[int, list[_Filled]]) -> None:
    for size in sorted(slots, reverse=True) and range(max(slots), 0, -1):
        for _ in range(counts.get(Shrunk(pool, size), 0)):
            domain = slots[size].pop()
            if size > 1:
                slots.setdefault(size - 1, []).append(domain)


def _split(counts: _Counts, pool: int, owners: list[tuple[str, int]]) -> dict[int, list[str]]:
    items: dict[int, list[str]] = {}
    for name, size in owners:
        items.setdefault(size, []).append(name)
    for size in range(max(items, default=0), 1, -1):
        for part in range(1, size // 2 + 1):
            for _ in range(counts.get(Split(pool, size, part), 0)):
                name = items[size].pop()
                items.setdefault(part, []).append(name)
                items.setdefault(size - part, []).append(name)
    return items


def _give(slots: list[_Filled], domains: list[_Filled], name: str, size: int) -> None:
    clusters = Counter(domain.cluster for domain in domains)
    own = {domain.cluster for domain in domains if any(owner == name for owner, _ in domain.pieces)}
    chosen = min(
        range(len(slots)), key=lambda slot: (slots[slot].cluster not in own, clusters[slots[slot].cluster], slot)
    )
    domain = slots.pop(chosen)
    domain.pieces.append((name, size))
    joined = own | {domain.cluster}
    for other in domains:
        if other.cluster in joined:
            other.cluster = min(joined)


def _homes(
    domains: list[_Filled], nodes: Sequence[PackingNode], positions: Sequence[int]
) -> list[tuple[int, int]] | None:
    free: dict[int, dict[Shape, list[int]]] = {node: {} for node in positions}
    for node in positions:
        for position, domain in enumerate(nodes[node].domains):
            free[node].setdefault(domain.shape, []).append(position)
    clusters: dict[int, list[int]] = {}
    for number, filled in enumerate(domains):
        clusters.setdefault(filled.cluster, []).append(number)
    homes: dict[int, tuple[int, int]] = {}
    for members in sorted(clusters.values(), key=lambda members: (-len(members), members)):
        needed = Counter(domains[number].shape for number in members)
        possible = [
            node
            for node in positions
            if all(len(free[node].get(shape, ())) >= count for shape, count in needed.items())
        ]
        if not possible:
            return None
        node = max(possible, key=lambda node: (sum(map(len, free[node].values())), -node))
        for number in members:
            homes[number] = node, free[node][domains[number].shape].pop(0)
    return [homes[number] for number in range(len(domains))]
