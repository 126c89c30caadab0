"""The CPUs of each guest of a layout, and the layout's score. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pinner.planning.packing.values import Domain, Guest, Layout, Node, Score, needed_domains


def allocate(nodes: Sequence[Node], guests: Iterable[Guest], layout: Layout) -> dict[str, tuple[int, ...]]:
    """The CPUs of each placed guest by its id: domain by domain, core by core.

    In a domain, guests in the given order take whole cores, the lowest first. A remainder gets a core of its own as
    long as there are enough; the last remainders share. Whole cores come before a remainder.
    """
    in_domain: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for guest in guests:
        for piece in layout.get(guest.id, ()):
            in_domain.setdefault((piece.node, piece.domain), []).append((guest.id, piece.cpus))
    found: dict[str, list[int]] = {}
    for node, domain in sorted(in_domain):
        for name, parts in _in_domain(nodes[node].domains[domain], in_domain[node, domain]).items():
            mine = found.setdefault(name, [])
            for part in parts:
                mine += cpus(part)
    return {name: tuple(mine) for name, mine in found.items()}


def scored(nodes: Sequence[Node], guests: Sequence[Guest], layout: Layout) -> Score:
    """The score of the layout, counted on the allocated CPUs."""
    return score_of(nodes, guests, allocate(nodes, guests, layout))


def score_of(nodes: Sequence[Node], guests: Sequence[Guest], taken: Mapping[str, Sequence[int]]) -> Score:
    """The score where the guests have these CPUs, which are free ones of the nodes."""
    homes = {cpu: (position, *home) for position, node in enumerate(nodes) for cpu, home in node.homes.items()}
    begun = {(position, *core) for position, node in enumerate(nodes) for core in node.begun}
    users = Counter(core for found in taken.values() for core in {homes[cpu] for cpu in found})
    rank = extra = 0
    placed = [guest for guest in guests if guest.id in taken]
    for guest in placed:
        domains = {homes[cpu][:2] for cpu in taken[guest.id]}
        rank += max((guest.ranks.get(nodes[node].id, 0) for node, _ in domains), default=0)
        if len(domains) > 1:
            extra += max(0, len(domains) - max(1, needed_domains(nodes, guest)))
    shared = sum(1 for core, count in users.items() if count > 1 or core in begun)
    return Score(len(guests) - len(placed), rank, shared, extra)


def cpus(mask: int) -> list[int]:
    """The CPUs of a mask, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _in_domain(domain: Domain, pieces: list[tuple[str, int]]) -> dict[str, list[int]]:
    """The parts of cores of each guest."""
    free = _FreeCores(domain, [count for _, count in pieces])
    found = {name: free.take(count) for name, count in pieces}
    for name, count in pieces:
        if lacking := count - sum(part.bit_count() for part in found[name]):
            found[name] += free.take_any(lacking)
    return found


class _FreeCores:
    """The free cores of a domain, from which guests take theirs one after the other."""

    def __init__(self, domain: Domain, counts: list[int]) -> None:
        self._width = domain.width
        rooms = [(core.free, core.free.bit_count() == self._width, core.begun) for core in domain.cores if core.free]
        self._whole = [mask for mask, whole, begun in rooms if whole and not begun]
        self._loose = [mask for mask, whole, begun in rooms if not whole and not begun]
        self._begun = [mask for mask, _, begun in rooms if begun]
        self._shared: list[int] = []
        self._left: list[int] = []
        rests = max(0, sum(1 for count in counts if count % self._width) - len(self._loose))
        self._reserved = sum(count // self._width for count in counts)
        spare = max(0, len(self._whole) - self._reserved)
        # Each remainder that shares a core with another one saves a core.
        self._alone = rests if rests <= spare else max(0, 2 * spare - rests)

    def take(self, count: int) -> list[int]:
        """Parts of cores with ``count`` CPUs, or with fewer where whole cores are missing."""
        number = count // self._width
        taken, self._whole = self._whole[:number], self._whole[number:]
        self._reserved -= number
        rest = count % self._width
        return [*taken, *self._rest(rest)] if rest else taken

    def take_any(self, count: int) -> list[int]:
        """``count`` CPUs of any free cores; those that no guest has begun first."""
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
    """The lowest ``count`` bits of the mask."""
    found = 0
    while mask and count:
        low = mask & -mask
        found, mask, count = found | low, mask ^ low, count - 1
    return found
