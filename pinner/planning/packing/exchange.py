"""A packing by exchanges between nodes: guests move, or change places, as long as that lowers the score. Last come
exchanges that save shared cores or L3 domains. The order is fixed and counts bound the work, so the result is always
the same."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pinner.planning.packing.allocation import scored
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.packing.values import Layout, PackingGuest, PackingNode, Shape

MOST_TRIALS = 30_000
"""Exchanges tried; 10,000 take about 30 ms."""
MOST_PACKED = 3000
"""Guests packed anew, each as often as its node is; 1000 take about 60 ms."""

_Exchange = tuple[tuple[PackingGuest, int], ...]
_Cost = tuple[int, int]


def exchanged(
    nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], start: Packing, homes: Mapping[str, int] | None = None
) -> Packing:
    """``start`` or a better packing. The search begins at the positions ``homes``; None: those of ``start``."""
    homes = {name: pieces[0].node for name, pieces in start.layout.items()} if homes is None else homes
    ordered = sorted(guests, key=lambda guest: (-guest.size, guest.id))
    search = _Search(nodes, [guest for guest in ordered if guest.id in homes], homes)
    search.lower_ranks()
    search.lower_costs()
    layout = search.layout()
    score = scored(nodes, ordered, layout)
    if start.score <= score:
        return start
    return replace(start, layout=layout, score=score, note="" if score <= start.bound else start.note)


class _Search:
    def __init__(self, nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], homes: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._guests = guests
        self._home = {guest.id: homes[guest.id] for guest in guests}
        self._free = [node.free for node in nodes]
        self._memory = [math.inf if node.memory is None else node.memory for node in nodes]
        for guest in guests:
            self._book(guest, self._home[guest.id], -1)
        self._trials, self._packs = MOST_TRIALS, MOST_PACKED
        self._costs: dict[tuple[tuple[Shape, ...], tuple[int, ...]], _Cost] = {}

    def lower_ranks(self) -> None:
        moved = True
        while moved and self._trials > 0:
            nearer = [self._bring_nearer(guest) for guest in self._guests]
            moved = any(nearer) or self._free_wanted()

    def lower_costs(self) -> None:
        costs = [self._cost(position, self._on(position)) for position in range(len(self._nodes))]
        moved = True
        while moved and self._trials > 0 and self._packs > 0:
            cheaper = [self._lower_cost(guest, costs) for guest in self._guests]
            moved = any(cheaper)

    def layout(self) -> Layout:
        layout = {}
        for position in range(len(self._nodes)):
            for name, pieces in self._packed(position, self._on(position)).layout.items():
                layout[name] = tuple(piece._replace(node=position) for piece in pieces)
        return layout

    def _bring_nearer(self, guest: PackingGuest) -> bool:
        for node in self._nearer(guest) if self._trials > 0 else ():
            others = [(other, third) for other in self._on(node) for third in range(len(self._nodes)) if third != node]
            for exchange in (((guest, node),), *(((guest, node), other) for other in others)):
                if self._step(exchange) < 0 and self._fits(exchange):
                    self._make(exchange)
                    return True
        return False

    def _free_wanted(self) -> bool:
        """One exchange after which fewer CPUs are missing on preferred nodes; whether there is one."""
        if not (missing := self._missing()):
            return False
        wanted = {node for guest in self._guests for node in self._nearer(guest)}
        for guest in self._guests:
            if self._home[guest.id] not in wanted or self._trials <= 0:
                continue
            for exchange in self._exchanges(guest):
                if self._step(exchange) == 0 and self._fits(exchange):
                    back = tuple((each, self._home[each.id]) for each, _ in exchange)
                    self._make(exchange)
                    if self._missing() < missing:
                        return True
                    self._make(back)
        return False

    def _missing(self) -> int:
        self._trials -= len(self._guests)
        lacks = ([max(0, guest.size - self._free[node]) for node in self._nearer(guest)] for guest in self._guests)
        return sum(min(each) for each in lacks if each)

    def _lower_cost(self, guest: PackingGuest, costs: list[_Cost]) -> bool:
        for exchange in self._exchanges(guest) if self._trials > 0 else ():
            here, there = self._home[guest.id], exchange[0][1]
            before = _sum((costs[here], costs[there]))
            if self._packs <= 0 or not any(before) or self._step(exchange) > 0 or not self._fits(exchange):
                continue
            leaving = {each.id for each, _ in exchange}
            members = [
                sorted(
                    [each for each in self._on(node) if each.id not in leaving]
                    + [each for each, target in exchange if target == node],
                    key=lambda each: (-each.size, each.id),
                )
                for node in (here, there)
            ]
            after = self._cost(here, members[0]), self._cost(there, members[1])
            if _sum(after) < before:
                self._make(exchange)
                costs[here], costs[there] = after
                return True
        return False

    def _exchanges(self, guest: PackingGuest) -> Iterator[_Exchange]:
        here = self._home[guest.id]
        for node in range(len(self._nodes)):
            if node != here:
                yield ((guest, node),)
                yield from (((guest, node), (other, here)) for other in self._on(node) if other.size < guest.size)

    def _nearer(self, guest: PackingGuest) -> list[int]:
        rank = guest.ranks[self._nodes[self._home[guest.id]].id]
        return [position for position, node in enumerate(self._nodes) if guest.ranks.get(node.id, rank) < rank]

    def _step(self, exchange: _Exchange) -> float:
        """Infinite where a guest cannot have the node."""
        self._trials -= 1
        return sum(
            guest.ranks.get(self._nodes[node].id, math.inf) - guest.ranks[self._nodes[self._home[guest.id]].id]
            for guest, node in exchange
        )

    def _fits(self, exchange: _Exchange) -> bool:
        cpus, memory = dict(enumerate(self._free)), dict(enumerate(self._memory))
        for guest, node in exchange:
            here = self._home[guest.id]
            cpus[here], memory[here] = cpus[here] + guest.size, memory[here] + guest.memory
            cpus[node], memory[node] = cpus[node] - guest.size, memory[node] - guest.memory
        return all(cpus[node] >= 0 and memory[node] >= 0 for _, node in exchange)

    def _make(self, exchange: _Exchange) -> None:
        for guest, node in exchange:
            self._book(guest, self._home[guest.id], 1)
            self._book(guest, node, -1)
            self._home[guest.id] = node

    def _book(self, guest: PackingGuest, node: int, sign: int) -> None:
        self._free[node] += sign * guest.size
        self._memory[node] += sign * guest.memory

    def _on(self, node: int) -> list[PackingGuest]:
        return [guest for guest in self._guests if self._home[guest.id] == node]

    def _cost(self, position: int, guests: Sequence[PackingGuest]) -> _Cost:
        key = tuple(domain.shape for domain in self._nodes[position].domains), tuple(guest.size for guest in guests)
        if key not in self._costs:
            self._packs -= len(guests)
            packing = self._packed(position, guests)
            self._costs[key] = packing.score.shared, sum(len(pieces) - 1 for pieces in packing.layout.values())
        return self._costs[key]

    def _packed(self, position: int, guests: Iterable[PackingGuest]) -> Packing:
        node = self._nodes[position]
        return pack([node], [replace(guest, ranks={node.id: 0}, memory=0) for guest in guests])


def _sum(costs: Iterable[_Cost]) -> _Cost:
    shared, extra = zip(*costs, strict=True)
    return sum(shared), sum(extra)
