"""The CPUs of each guest of a layout, its score, and the arithmetic bound below which no layout of these guests on
these nodes scores."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

from pinner.model.machine.topology import NodeId
from pinner.planning.packing.values import Layout, PackingDomain, PackingGuest, PackingNode, Score, needed_domains

_Parts = tuple[int, ...]
"""As bits."""


def allocate(
    nodes: Sequence[PackingNode], guests: Iterable[PackingGuest], layout: Layout
) -> dict[str, tuple[int, ...]]:
    """CPUs by the guest's id. In a domain, guests in the given order take whole cores, the lowest first. A remainder
    gets a core of its own as long as there are enough; the last ones share."""
    taken: dict[str, list[int]] = {}
    for _, names, parts in _in_domains(nodes, guests, layout):
        for name, own in zip(names, parts, strict=True):
            mine = taken.setdefault(name, [])
            for part in own:
                mine += cpus(part)
    return {name: tuple(mine) for name, mine in taken.items()}


def scored(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], layout: Layout) -> Score:
    shared = sum(_shared(domain, parts) for domain, _, parts in _in_domains(nodes, guests, layout))
    rank = extra = placed = 0
    for guest in guests:
        if pieces := layout.get(guest.id):
            placed += 1
            rank += max([guest.ranks.get(nodes[piece.node].id, 0) for piece in pieces])
            if len(pieces) > 1:
                extra += max(0, len(pieces) - max(1, needed_domains(nodes, guest.size, guest.ranks)))
    return Score(len(guests) - placed, rank, shared, extra)


def score_of(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], taken: Mapping[str, Sequence[int]]) -> Score:
    """``taken`` are free CPUs of the nodes."""
    homes = {cpu: (position, *home) for position, node in enumerate(nodes) for cpu, home in node.homes.items()}
    begun = {(position, *core) for position, node in enumerate(nodes) for core in node.begun}
    users = Counter(core for cpus in taken.values() for core in {homes[cpu] for cpu in cpus})
    rank = extra = 0
    placed = [guest for guest in guests if guest.id in taken]
    for guest in placed:
        domains = {homes[cpu][:2] for cpu in taken[guest.id]}
        rank += max((guest.ranks.get(nodes[node].id, 0) for node, _ in domains), default=0)
        if len(domains) > 1:
            extra += max(0, len(domains) - max(1, needed_domains(nodes, guest.size, guest.ranks)))
    shared = sum(1 for core, count in users.items() if count > 1 or core in begun)
    return Score(len(guests) - len(placed), rank, shared, extra)


def cpus(mask: int) -> list[int]:
    numbers = []
    while mask:
        low = mask & -mask
        numbers.append(low.bit_length() - 1)
        mask ^= low
    return numbers


def _in_domains(
    nodes: Sequence[PackingNode], guests: Iterable[PackingGuest], layout: Layout
) -> Iterator[tuple[PackingDomain, list[str], tuple[_Parts, ...]]]:
    in_domain: dict[tuple[int, int], tuple[list[str], list[int]]] = {}
    for guest in guests:
        for node, domain, count in layout.get(guest.id, ()):
            names, counts = in_domain.setdefault((node, domain), ([], []))
            names.append(guest.id)
            counts.append(count)
    for (node, domain), (names, counts) in sorted(in_domain.items()):
        here = nodes[node].domains[domain]
        yield here, names, _parts(here, tuple(counts))


@lru_cache(maxsize=1024)
def _parts(domain: PackingDomain, counts: tuple[int, ...]) -> tuple[_Parts, ...]:
    free = _FreeCores(domain, counts)
    taken = [free.take(count) for count in counts]
    for parts, count in zip(taken, counts, strict=True):
        if lacking := count - sum(map(int.bit_count, parts)):
            parts += free.take_any(lacking)
    return tuple(map(tuple, taken))


def _shared(domain: PackingDomain, taken: Sequence[_Parts]) -> int:
    whole = frozenset(domain.whole)
    if whole.issuperset(chain.from_iterable(taken)):
        return 0
    users = Counter(core for parts in taken for core in {domain.core_of(part) for part in parts if part not in whole})
    return sum(1 for core, count in users.items() if count > 1 or domain.cores[core].begun)


class _FreeCores:
    def __init__(self, domain: PackingDomain, counts: Sequence[int]) -> None:
        self._width = domain.width
        self._whole, self._loose, self._begun = list(domain.whole), list(domain.loose), list(domain.begun)
        self._shared: list[int] = []
        self._left: list[int] = []
        rests = max(0, sum(1 for count in counts if count % self._width) - len(self._loose))
        self._reserved = sum(count // self._width for count in counts)
        spare = max(0, len(self._whole) - self._reserved)
        # Each remainder that shares a core with another one saves a core.
        self._alone = rests if rests <= spare else max(0, 2 * spare - rests)

    def take(self, count: int) -> list[int]:
        """Fewer than ``count`` where whole cores are missing."""
        number = count // self._width
        taken, self._whole = self._whole[:number], self._whole[number:]
        self._reserved -= number
        rest = count % self._width
        return [*taken, *self._rest(rest)] if rest else taken

    def take_any(self, count: int) -> list[int]:
        taken = []
        for store in (self._loose, self._whole, self._left, self._shared, self._begun):
            while store and count:
                mask = store.pop(0)
                part = _first(mask, count)
                taken.append(part)
                count -= part.bit_count()
                if mask != part:
                    store.insert(0, mask ^ part)
        return taken

    def _rest(self, count: int) -> list[int]:
        for mask in sorted(self._loose, key=lambda mask: (mask.bit_count(), mask)):
            if mask.bit_count() >= count:
                self._loose.remove(mask)
                return [self._begin(mask, count, self._left)]
        if self._alone and len(self._whole) > self._reserved:
            self._alone -= 1
            return [self._begin(self._whole.pop(0), count, self._left)]
        for mask in self._shared:
            if mask.bit_count() >= count:
                self._shared.remove(mask)
                return [self._begin(mask, count, self._shared)]
        if len(self._whole) > self._reserved:
            return [self._begin(self._whole.pop(0), count, self._shared)]
        return []

    @staticmethod
    def _begin(mask: int, count: int, store: list[int]) -> int:
        part = _first(mask, count)
        if mask != part:
            store.append(mask ^ part)
        return part


def _first(mask: int, count: int) -> int:
    lowest = 0
    while mask and count:
        low = mask & -mask
        lowest, mask, count = lowest | low, mask ^ low, count - 1
    return lowest


def bound(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> Score:
    """A score not above the best one; docs/strategies.md has the arithmetic."""
    alike = Counter((guest.size, tuple(guest.ranks)) for guest in guests)
    needs = ((size, needed_domains(nodes, size, ranks), count) for (size, ranks), count in alike.items())
    fitting = sorted(need for size, domains, count in needs if domains for need in [(size, domains)] * count)
    room = sum(node.free for node in nodes)
    placed = bisect_right(list(accumulate([size for size, _ in fitting])), room)
    sizes = [size for size, _ in fitting[:placed]]
    alone = [size for size, domains in fitting[:placed] if domains == 1]
    rank = least_rank(nodes, guests) if placed == len(guests) else 0
    return Score(
        len(guests) - placed, rank, _shared_bound(nodes, sizes), _extra(nodes, alone) if placed == len(fitting) else 0
    )


def least_rank(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> int:
    """A node has room for some of the guests that prefer it; each other one is on its second best node at best."""
    if not any(any(guest.ranks.values()) for guest in guests):
        return 0
    preferring: dict[NodeId, list[PackingGuest]] = {}
    for guest in guests:
        if len(guest.best) == 1:
            preferring.setdefault(next(iter(guest.best)), []).append(guest)
    least = sum(min(guest.ranks.values()) for guest in guests)
    for node in nodes:
        here = preferring.get(node.id, [])
        room = sum(1 for total in accumulate(sorted(guest.size for guest in here)) if total <= node.free)
        least += sum(sorted(map(_step, here))[: len(here) - room])
    return least


def _step(guest: PackingGuest) -> int:
    ranks = sorted(set(guest.ranks.values()))
    return ranks[1] - ranks[0] if len(ranks) > 1 else 0


class Cores(NamedTuple):
    width: int
    whole: int
    most: int


def cores(nodes: Sequence[PackingNode]) -> Cores:
    every = [domain for node in nodes for domain in node.domains]
    begun = max([free.bit_count() for domain in every for free in domain.begun], default=0)
    others = max([domain.width for domain in every if domain.whole], default=0)
    return Cores(
        width=max(begun, others) or 1,
        whole=sum([len(domain.whole) + len(domain.loose) for domain in every]),
        most=max(begun, others - 1) or 1,
    )


def _shared_bound(nodes: Sequence[PackingNode], sizes: Sequence[int]) -> int:
    width, whole, most = cores(nodes)
    lacking = sum([-(-size // width) for size in sizes]) - whole
    return max(0, -(-lacking // most))


def _extra(nodes: Sequence[PackingNode], sizes: Sequence[int]) -> int:
    frees = [domain.free for node in nodes for domain in node.domains]
    largest = max(frees, default=0)
    # Only one of two guests that together are larger than every domain is in a domain.
    wide = [size for size in sizes if largest < 2 * size]
    return max(0, len(wide) - sum(1 for free in frees if free >= min(wide))) if wide else 0
