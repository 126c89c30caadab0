"""The best packings that the solver finds within a budget, with their proof: by the pattern model, or on whole nodes.

The program of whole nodes is solved quickly: it has no L3 domains, so a guest may span them. No layout has fewer
unplaced guests or a lower sum of ranks; shared cores are a bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pinner.planning.packing.allocation import cores, scored
from pinner.planning.packing.exchange import exchanged
from pinner.planning.packing.heuristic import Packing
from pinner.planning.packing.patterns import MOST_PATTERNS, Model, are_alike, build, realised
from pinner.planning.packing.program import MISSING, Minimise, Program, ProgramRow, Work, solved
from pinner.planning.packing.values import Layout, PackingGuest, PackingNode, Score

BUDGET = 1000
"""See Work."""
TOO_LARGE = f"an L3 domain can be filled in more than {MOST_PATTERNS} ways: too many for the solver"
NOT_QUICK = "the solver would take seconds for these guests and nodes: strategy 'optimal' asks it"


def improved(
    nodes: Sequence[PackingNode],
    guests: Sequence[PackingGuest],
    start: Packing,
    budget: int = BUDGET,
    *,
    solve: Minimise | None,
    quickly: bool = False,
) -> Packing:
    """The model's packing, or ``start`` where that is as good; its note says why it is not proven.

    Nodes that are alike are first one pool, which is quick. Pools of their own come last, unless it shall go
    ``quickly``. ``solve`` None: there is no solver.
    """
    if start.proven:
        return start
    if solve is None:
        return replace(start, note=MISSING)
    ordered = sorted(guests, key=lambda guest: (-guest.size, guest.id))
    best, work, alike = start, Work(solve, budget), are_alike(nodes, guests)
    together, apart = (tuple(range(len(nodes))),), tuple((position,) for position in range(len(nodes)))
    if alike:
        best = _in_pools(together, best, nodes, ordered, work)
    best = on_best_nodes(nodes, guests, best, work)
    if not quickly and not (alike and apart == together):
        best = _in_pools(apart, best, nodes, ordered, work)
    return replace(best, note="" if best.proven else NOT_QUICK if quickly else best.note)


def _in_pools(
    pools: tuple[tuple[int, ...], ...],
    best: Packing,
    nodes: Sequence[PackingNode],
    guests: list[PackingGuest],
    work: Work,
) -> Packing:
    if best.proven:
        return best
    model = build(nodes, guests, pools)
    if model is None:
        return replace(best, note=TOO_LARGE)
    best = replace(best, note=f"the budget of {work.budget} nodes is too small to prove this placement; raise it")
    return _better(best, model, nodes, guests, work) if work.affords(model) else best


def _better(
    best: Packing, model: Model, nodes: Sequence[PackingNode], guests: list[PackingGuest], work: Work
) -> Packing:
    solution = solved(model, best.score, best.bound, work)
    best = replace(best, bound=max(best.bound, solution.bound))
    layout = realised(model, nodes, solution.values) if solution.values else None
    if layout is None or not _has_memory(nodes, guests, layout):
        return best
    score = scored(nodes, guests, layout)
    return replace(best, layout=layout, score=score) if score < best.score else best


def _has_memory(nodes: Sequence[PackingNode], guests: list[PackingGuest], layout: Layout) -> bool:
    """One pool of all nodes knows only the sum of their memory."""
    used: dict[int, int] = {}
    for guest in guests:
        for piece in layout.get(guest.id, ())[:1]:
            used[piece.node] = used.get(piece.node, 0) + guest.memory
    limits = [node.memory for node in nodes]
    return all(limit is None or used.get(position, 0) <= limit for position, limit in enumerate(limits))


_NO_LIMIT = float("-inf")
_Class = tuple[PackingGuest, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
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
    if not work.affords(program):  # its bound of shared cores matters least
        program = replace(program, costs=costs[:2])
    solution = solved(program, start.score, start.bound, work)
    best = replace(start, bound=max(start.bound, solution.bound))
    return (
        exchanged(nodes, guests, best, _homes(columns, solution.values))
        if solution.values and not best.proven
        else best
    )


def _classes(guests: Sequence[PackingGuest]) -> list[_Class]:
    classes: dict[object, list[PackingGuest]] = {}
    for guest in sorted(guests, key=lambda guest: (-guest.size, guest.id)):
        classes.setdefault((guest.size, guest.memory, frozenset(guest.ranks.items())), []).append(guest)
    return list(map(tuple, classes.values()))


def _columns(nodes: Sequence[PackingNode], classes: Sequence[_Class]) -> Iterator[_Column]:
    for guests in classes:
        yield _Placed(guests, None)
        yield from (_Placed(guests, position) for position, node in enumerate(nodes) if node.id in guests[0].ranks)
    yield from map(_Shared, range(len(nodes)))


def _cost(column: _Column, nodes: Sequence[PackingNode]) -> tuple[int, int, int]:
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
