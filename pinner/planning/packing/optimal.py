"""The best packing that the pattern model finds within a budget, with its proof."""

from collections.abc import Sequence
from dataclasses import replace

from pinner.planning.packing.allocation import scored
from pinner.planning.packing.heuristic import Packing
from pinner.planning.packing.patterns import MOST_PATTERNS, Model, are_alike, build
from pinner.planning.packing.program import MISSING, Minimise, Work, solved
from pinner.planning.packing.realised import realised
from pinner.planning.packing.values import Layout, PackingGuest, PackingNode

BUDGET = 1000
"""In nodes of the solver's search tree, for each term."""
MOST_QUICK_CELLS = 50_000
"""Columns times rows: the nodes of the search tree do not bound the work at each of them."""
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
    """The packing of the model, or ``start`` where that is as good; its note says why it is not proven.

    Nodes that are alike are one pool first, which is quick. Where a guest would then span nodes, each node is a pool,
    unless it shall go ``quickly``: then a large model is not solved either. ``solve`` None: there is no solver.
    """
    if start.proven:
        return start
    if solve is None:
        return replace(start, note=MISSING)
    ordered = sorted(guests, key=lambda guest: (-guest.size, guest.id))
    best = start
    each = tuple((node,) for node in range(len(nodes)))
    together = (tuple(range(len(nodes))),)
    alike = len(nodes) > 1 and are_alike(nodes, guests)
    for pools in ((together,) if quickly else (together, each)) if alike else (each,):
        model = build(nodes, ordered, pools)
        if model is None:
            return replace(best, note=TOO_LARGE)
        if quickly and len(model.columns) * len(model.rows) > MOST_QUICK_CELLS:
            return replace(best, note=NOT_QUICK)
        best = _better(best, model, nodes, ordered, Work(solve, budget))
        if best.proven:
            return best
    return replace(best, note=f"the budget of {budget} nodes is too small to prove this placement; raise it")


def _better(
    best: Packing, model: Model, nodes: Sequence[PackingNode], guests: list[PackingGuest], work: Work
) -> Packing:
    found = solved(model, best.score, best.bound, work)
    best = replace(best, bound=max(best.bound, found.bound))
    layout = realised(model, nodes, found.values) if found.values else None
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
