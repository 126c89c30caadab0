"""The receive rings of cards. Only those of cards that dropped packets grow: most drivers restart the card for another
size, and a larger ring uses more of the cache."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.cards import RxRing
from pinner.model.states import Number, State
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow


def _additions(_plan: Plan, context: Context) -> Additions:
    small = [ring for ring in context.snapshot.rings or () if _is_small(ring)]
    growing = (ring.interface for ring in small if ring.size < ring.most)
    warnings = (f"{name}: most drivers restart the card for another size of its ring" for name in growing)
    return Additions(tuple(map(_wanted, small)), warnings=tuple(warnings))


def _objection(change: StateChange, _plan: Plan, context: Context) -> str:
    ring = next(each for each in context.snapshot.rings or () if each.target.key == change.target.key)
    if not _is_small(ring):
        return "the card has dropped no packets for lack of room"
    if change.after != Number(ring.most):
        return f"a plan gives it the maximum of {ring.most} packets, and no other size"
    if isinstance(change.before, Number) and change.before.value > ring.most:
        return f"it has {change.before} packets already"
    return ""


def _is_small(ring: RxRing) -> bool:
    return ring.has_dropped and ring.most > 0


def _wanted(ring: RxRing) -> Wanted:
    why = f"the card has dropped packets, and its ring holds {ring.size} of at most {ring.most}"
    size = max(ring.size, ring.most)
    return Wanted(ring.target, CpuSet(), why if ring.size < size else "in place", Number(size))


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"ethtool -G {quote(target.name)} rx {state}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "rings",
    "a host whose rings are known; this snapshot has none, so take a new one",
)
