"""A packing on the best nodes. The solver finds them quickly: its program has no L3 domains.

A guest may span L3 domains. So no layout has fewer unplaced guests or a lower sum of ranks; shared cores are a bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pinner.planning.packing.bound import cores
from pinner.planning.packing.exchange import exchanged
from pinner.planning.packing.heuristic import Packing
from pinner.planning.packing.program import Program, ProgramRow, Work, solved
from pinner.planning.packing.values import PackingGuest, PackingNode, Score

_NO_LIMIT = float("-inf")
_Class = tuple[PackingGuest, ...]
"""Guests of the same size, ranks and memory."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """On the node at this position; None: on no node."""

    guests: _Class
    node: int | None


@dataclass(frozen=True, slots=True)
class _Shared:
    node: int


_Column = _Placed | _Shared


def on_best_nodes(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest], start: Packing, work: Work) -> Packing:
    """Better than ``start``, or with a better bound, if the program has one."""
    if start.proven:
        return start
    classes = _classes(guests)
    columns = tuple(_columns(nodes, classes))
    costs = tuple(zip(*(_cost(column, nodes) for column in columns), strict=True))
    program = Program(tuple(_rows(nodes, classes, columns)), costs, Score(0, 0, 0, 0))
    found = solved(program, start.score, start.bound, work)
    best = replace(start, bound=max(start.bound, found.bound))
    return exchanged(nodes, guests, best, _homes(columns, found.values)) if found.values and not best.proven else best


def _classes(guests: Sequence[PackingGuest]) -> list[_Class]:
    found: dict[object, list[PackingGuest]] = {}
    for guest in sorted(guests, key=lambda guest: (-guest.size, guest.id)):
        found.setdefault((guest.size, guest.memory, frozenset(guest.ranks.items())), []).append(guest)
    return list(map(tuple, found.values()))


def _columns(nodes: Sequence[PackingNode], classes: Sequence[_Class]) -> Iterator[_Column]:
    for guests in classes:
        yield _Placed(guests, None)
        yield from (_Placed(guests, position) for position, node in enumerate(nodes) if node.id in guests[0].ranks)
    yield from map(_Shared, range(len(nodes)))


def _cost(column: _Column, nodes: Sequence[PackingNode]) -> tuple[int, int, int]:
    """Unplaced guests, ranks and shared cores."""
    match column:
        case _Placed(_, None):
            return 1, 0, 0
        case _Placed(guests, int(node)):
            return 0, guests[0].ranks[nodes[node].id], 0
        case _:
            return 0, 0, 1


def _rows(nodes: Sequence[PackingNode], classes: Sequence[_Class], columns: Sequence[_Column]) -> Iterator[ProgramRow]:
    for guests in classes:
        mine = tuple((at, 1) for at, each in enumerate(columns) if isinstance(each, _Placed) and each.guests == guests)
        yield ProgramRow(mine, len(guests), len(guests))
    for position, node in enumerate(nodes):
        here = [
            (at, each.guests[0])
            for at, each in enumerate(columns)
            if isinstance(each, _Placed) and each.node == position
        ]
        yield ProgramRow(tuple((at, guest.size) for at, guest in here), _NO_LIMIT, node.free)
        if node.memory is not None:
            yield ProgramRow(tuple((at, guest.memory) for at, guest in here), _NO_LIMIT, node.memory)
        width, whole, most = cores([node])
        needed = tuple((at, -(-guest.size // width)) for at, guest in here)
        yield ProgramRow((*needed, (columns.index(_Shared(position)), -most)), _NO_LIMIT, whole)


def _homes(columns: Sequence[_Column], values: Sequence[int]) -> dict[str, int]:
    waiting = {each.guests: list(each.guests) for each in columns if isinstance(each, _Placed)}
    return {
        waiting[each.guests].pop(0).id: each.node
        for each, count in zip(columns, values, strict=True)
        if isinstance(each, _Placed) and each.node is not None
        for _ in range(count)
    }
