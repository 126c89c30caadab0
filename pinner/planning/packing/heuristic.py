"""A packing by rules, the quickest first, until a layout meets the arithmetic bound, as where the sizes of guests
divide each other. The order of nodes and domains, and the guests' ids, decide ties."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from pinner.planning.packing.allocation import bound, scored
from pinner.planning.packing.values import Layout, PackingGuest, PackingNode, Piece, Score


class PackingRoom:
    """How many CPUs are free; the layout says which. A guest takes up its size, or more where it shall share no
    core."""

    def __init__(self, nodes: Sequence[PackingNode]) -> None:
        self.nodes = nodes
        self.free = [[domain.free for domain in node.domains] for node in nodes]
        self.total = [node.free for node in nodes]
        self.memory = [node.memory for node in nodes]
        self.layout: dict[str, tuple[Piece, ...]] = {}
        self._taken: dict[str, tuple[PackingGuest, list[tuple[int, int, int]]]] = {}

    def fits(self, guest: PackingGuest, node: int) -> bool:
        memory = self.memory[node]
        return self.total[node] >= guest.size and (memory is None or memory >= guest.memory)

    def possible(self, guest: PackingGuest) -> list[int]:
        large = [node for node, total in enumerate(self.total) if total >= guest.size]
        return [node for node in large if self.nodes[node].id in guest.ranks and self.fits(guest, node)]

    def spans(self, size: int, node: int) -> int:
        frees = self.free[node]
        if max(frees) >= size:
            return 1
        count, rest = 0, size
        for free in sorted(frees, reverse=True):
            count, rest = count + 1, rest - free
            if rest <= 0:
                break
        return count

    def place(self, guest: PackingGuest, node: int, footprint: int) -> None:
        """In the fullest domain with room, else in the fewest: the emptiest ones hold all but the rest."""
        frees, rest, pieces = self.free[node], guest.size, []
        if frees[first := self._best(frees, rest, footprint)] >= rest:
            self.place_in(guest, node, first, footprint)
            return
        while rest:
            domain = self._best(frees, rest, footprint)
            piece = min(rest, frees[domain])
            pieces.append(Piece(node, domain, piece))
            footprint, rest = footprint - piece, rest - piece
            frees[domain] -= piece
        self._taken[guest.id] = guest, [(piece.node, piece.domain, piece.cpus) for piece in pieces]
        last = pieces[-1]
        if (more := min(footprint, frees[last.domain])) > 0:
            frees[last.domain] -= more
            self._taken[guest.id][1].append((node, last.domain, more))
        self.total[node] = sum(frees)
        if (memory := self.memory[node]) is not None:
            self.memory[node] = memory - guest.memory
        self.layout[guest.id] = tuple(sorted(pieces))

    def place_in(self, guest: PackingGuest, node: int, domain: int, footprint: int) -> None:
        taken = min(footprint, self.free[node][domain])
        self.free[node][domain] -= taken
        self.total[node] -= taken
        if (memory := self.memory[node]) is not None:
            self.memory[node] = memory - guest.memory
        self._taken[guest.id] = guest, [(node, domain, taken)]
        self.layout[guest.id] = (Piece(node, domain, guest.size),)

    def remove(self, name: str) -> None:
        guest, taken = self._taken.pop(name)
        for node, domain, count in taken:
            self.free[node][domain] += count
            self.total[node] += count
        node = taken[0][0]
        if (memory := self.memory[node]) is not None:
            self.memory[node] = memory + guest.memory
        del self.layout[name]

    @staticmethod
    def _best(frees: list[int], rest: int, footprint: int) -> int:
        for wanted in (footprint, rest):
            if large := [(free, domain) for domain, free in enumerate(frees) if free >= wanted]:
                return min(large)[1]
        return frees.index(max(frees))


Counts = tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def fullest(free: int, counts: Counts) -> tuple[tuple[int, int], ...]:
    """Numbers of guests whose sum is nearest to ``free`` from below; of equal sums the one with most of the largest
    size."""
    # reachable[i]: the sums, as bits, of guests of the sizes from position i on.
    reachable = [1] * (len(counts) + 1)
    for position in range(len(counts) - 1, -1, -1):
        size, number = counts[position]
        reachable[position] = _with(reachable[position + 1], size, number, free)
    rest = reachable[0].bit_length() - 1
    chosen = []
    for position, (size, number) in enumerate(counts):
        most = min(number, rest // size)
        used = next(n for n in range(most, -1, -1) if reachable[position + 1] >> (rest - n * size) & 1)
        if used:
            chosen.append((size, used))
            rest -= used * size
    return tuple(chosen)


def _with(sums: int, size: int, number: int, free: int) -> int:
    within, step = (1 << free + 1) - 1, 1
    while number > 0:
        # Doubled steps reach every number of guests.
        now = min(step, number)
        sums |= sums << now * size & within
        number, step = number - now, 2 * step
    return sums & within


_Footprints = dict[str, int]


@dataclass(frozen=True, slots=True)
class Packing:
    layout: Layout
    score: Score
    bound: Score
    note: str = ""
    """Why the score is not proven; also empty where nobody tried."""

    @property
    def gap(self) -> float:
        """(number - bound) / number of the first term that is not at its bound."""
        for value, least in zip(self.score, self.bound, strict=True):
            if value != least:
                return max(0.0, (value - least) / value) if value else 0.0
        return 0.0

    @property
    def proven(self) -> bool:
        return self.score <= self.bound


def pack(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> Packing:
    ordered = sorted(guests, key=lambda guest: (-guest.size, guest.id))
    least = bound(nodes, ordered)
    best: tuple[Score, Layout] | None = None
    # A guest that fits comes before nodes that others prefer: then the rules are tried without the ranks.
    for ranked in (True, False):
        in_order = ordered if ranked else _indifferent(ordered)
        for layout in _layouts(nodes, in_order, least):
            score = scored(nodes, ordered, layout)
            if best is None or score < best[0]:
                best = score, layout
            if score <= least:
                break
        if best is None or best[0].unplaced <= least.unplaced:
            break
    return Packing({}, least, least) if best is None else Packing(best[1], best[0], least)


def _indifferent(guests: list[PackingGuest]) -> list[PackingGuest]:
    return [replace(guest, ranks=dict.fromkeys(guest.ranks, 0)) for guest in guests]


def _layouts(nodes: Sequence[PackingNode], guests: list[PackingGuest], least: Score) -> Iterator[Layout]:
    footprints = [_footprints(nodes, guests, least.shared), {guest.id: guest.size for guest in guests}]
    # Where some guests cannot be placed, those without the largest ones fit best; but large ones come first.
    kept = [guests, guests[least.unplaced :]] if least.unplaced else [guests]
    for rule in (_worst_fit, _fill_domains, _fill_nodes):
        for some in kept:
            for footprint in footprints:
                room = PackingRoom(nodes)
                rule(room, some, footprint)
                _repair(room, guests)
                yield dict(room.layout)


def _footprints(nodes: Sequence[PackingNode], guests: list[PackingGuest], pairs: int) -> _Footprints:
    """Whole cores; but only the size of as many pairs of guests as must share a core, the smallest ones."""
    width = max((domain.width for node in nodes for domain in node.domains), default=1)
    odd = [guest.id for guest in guests if guest.size % width]
    sharing = set(odd[max(0, len(odd) - 2 * pairs) :])
    return {guest.id: guest.size if guest.id in sharing else -(-guest.size // width) * width for guest in guests}


def _worst_fit(room: PackingRoom, guests: list[PackingGuest], footprints: _Footprints) -> None:
    """The largest first, on the best node of its lowest rank, in the fewest domains, where most is free."""
    for _, alike in groupby(guests, lambda guest: (guest.size, footprints[guest.id], guest.memory, guest.ranks)):
        # A guest changes only the rank of its own node for the guests that are equal to it.
        ranks: dict[int, tuple[int, int, int, int]] | None = None
        for guest in alike:
            if ranks is None:
                ranks = {node: _rank(room, guest, node) for node in room.possible(guest)}
            if not ranks:
                break
            node = min(ranks, key=ranks.__getitem__)
            room.place(guest, node, footprints[guest.id])
            if room.fits(guest, node):
                ranks[node] = _rank(room, guest, node)
            else:
                del ranks[node]


def _rank(room: PackingRoom, guest: PackingGuest, node: int) -> tuple[int, int, int, int]:
    return guest.ranks[room.nodes[node].id], room.spans(guest.size, node), -room.total[node], node


def _fill_domains(room: PackingRoom, guests: list[PackingGuest], footprints: _Footprints) -> None:
    largest = max((domain.free for node in room.nodes for domain in node.domains), default=0)
    _worst_fit(room, [guest for guest in guests if guest.size > largest], footprints)
    order = [(-free, node, domain) for node, frees in enumerate(room.free) for domain, free in enumerate(frees)]
    for _, node, domain in sorted(order):
        _fill(room, node, domain, guests, footprints)
    _worst_fit(room, [guest for guest in guests if guest.id not in room.layout], footprints)


def _fill(room: PackingRoom, node: int, domain: int, guests: list[PackingGuest], footprints: _Footprints) -> None:
    free = room.free[node][domain]
    waiting = [
        guest
        for guest in guests
        if guest.id not in room.layout and footprints[guest.id] <= free and _prefers(room, guest, node)
    ]
    for guest in _chosen(waiting, free, footprints):
        if room.fits(guest, node):
            room.place_in(guest, node, domain, footprints[guest.id])


def _fill_nodes(room: PackingRoom, guests: list[PackingGuest], footprints: _Footprints) -> None:
    waiting = list(guests)
    for node in range(len(room.nodes)):
        candidates = [guest for guest in waiting if _prefers(room, guest, node) and room.fits(guest, node)]
        here = _chosen(candidates, room.total[node], {guest.id: guest.size for guest in candidates})
        names = {guest.id for guest in here}
        waiting = [guest for guest in waiting if guest.id not in names]
        largest = max(room.free[node], default=0)
        for guest in here:
            if guest.size > largest and room.fits(guest, node):
                room.place(guest, node, footprints[guest.id])
        for domain in sorted(range(len(room.free[node])), key=lambda each: (-room.free[node][each], each)):
            _fill(room, node, domain, here, footprints)
        for guest in here:
            if guest.id not in room.layout and room.fits(guest, node):
                room.place(guest, node, guest.size)
    _worst_fit(room, [guest for guest in guests if guest.id not in room.layout], footprints)


def _prefers(room: PackingRoom, guest: PackingGuest, node: int) -> bool:
    return room.nodes[node].id in guest.best


def _chosen(guests: list[PackingGuest], free: int, footprints: _Footprints) -> list[PackingGuest]:
    by_size: dict[int, list[PackingGuest]] = {}
    for guest in guests:
        by_size.setdefault(footprints[guest.id], []).append(guest)
    counts = tuple((size, len(by_size[size])) for size in sorted(by_size, reverse=True))
    return [guest for size, number in fullest(free, counts) for guest in by_size[size][:number]]


def _repair(room: PackingRoom, guests: list[PackingGuest]) -> None:
    for guest in guests:
        if guest.id in room.layout:
            continue
        if nodes := room.possible(guest):
            room.place(guest, min(nodes, key=lambda node: _rank(room, guest, node)), guest.size)
        else:
            _make_room(room, guests, guest)


def _make_room(room: PackingRoom, guests: list[PackingGuest], newcomer: PackingGuest) -> None:
    if sum(room.total) < newcomer.size:
        return
    for guest in reversed(guests):
        pieces = room.layout.get(guest.id)
        if pieces is None or room.nodes[pieces[0].node].id not in newcomer.ranks:
            continue
        here, footprint = pieces[0].node, sum(piece.cpus for piece in pieces)
        if room.total[here] + 2 * footprint < newcomer.size:
            continue
        room.remove(guest.id)
        if room.fits(newcomer, here):
            room.place(newcomer, here, newcomer.size)
            if others := room.possible(guest):
                room.place(guest, min(others, key=lambda node: _rank(room, guest, node)), guest.size)
                return
            room.remove(newcomer.id)
        room.place(guest, here, guest.size)
