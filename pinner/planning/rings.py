"""The receive rings of cards as changes of a plan: the driver's maximum for cards that have dropped packets. Pure.

A card that has dropped nothing keeps its ring: most drivers restart the card for another size, and a larger ring uses
more of the cache.
"""

from dataclasses import replace

from pinner.model.change import Number, StateChange
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.plan import Plan, Wanted
from pinner.model.request import RINGS
from pinner.model.rings import RxRing
from pinner.planning.context import Context
from pinner.planning.diff import changes


def with_rings(plan: Plan, context: Context) -> Plan:
    """The plan, with the receive rings if its request asks for them. Raises Invalid where the snapshot has none."""
    if not plan.request.asks_for(RINGS):
        return plan
    if context.snapshot.rings is None:
        raise Invalid("with", RINGS, "a host whose rings are known; this snapshot has none, so take a new one")
    placed = tuple(map(_wanted, filter(_is_small, context.snapshot.rings)))
    made = changes(context, placed)
    warnings = (f"{change.target.name}: most drivers restart the card for another size of its ring" for change in made)
    return replace(
        plan,
        changes=(*made, *plan.changes),
        wanted=(*plan.wanted, *placed),
        warnings=(*plan.warnings, *warnings),
    )


def objection(change: StateChange, plan: Plan, context: Context) -> str:
    """Why an agent does not make this change of a ring; empty where it does."""
    if not plan.request.asks_for(RINGS):
        return "the plan's request does not ask for rings"
    ring = next(each for each in context.snapshot.rings or () if each.target.key == change.target.key)
    if not _is_small(ring):
        return "the card has dropped no packets for lack of room"
    if change.after != Number(ring.most):
        return f"a plan gives it the maximum of {ring.most} packets, and no other size"
    if isinstance(change.before, Number) and change.before.value > ring.most:
        return f"it has {change.before} packets already"
    return ""


def _is_small(ring: RxRing) -> bool:
    """Whether the ring has been too small at least once."""
    return ring.has_dropped and ring.most > 0


def _wanted(ring: RxRing) -> Wanted:
    why = f"the card has dropped packets, and its ring holds {ring.size} of at most {ring.most}"
    size = max(ring.size, ring.most)
    return Wanted(ring.target, CpuSet(), why if ring.size < size else "in place", Number(size))
