"""The layout that a solution of the pattern model stands for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pinner.planning.packing.patterns import Column, InPool, Model, Pattern, Shrunk, Split
from pinner.planning.packing.values import Layout, PackingNode, Piece, Shape

_Counts = Mapping[Column, int]


@dataclass
class _Filled:
    """Without a position on a node yet."""

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
    return {name: tuple(sorted(_joined(found))) for name, found in pieces.items()}


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
    number = Counter(name for found in items.values() for name in found)
    spanning = sorted((-number[name], name, size) for size, found in items.items() for name in found)
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
    """Beside the guest's other pieces, else in the smallest cluster."""
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
