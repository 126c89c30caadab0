"""Interrupt coalescing. Few packets have the shortest delay without it, so only cards with many packets get some."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import Number, State
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.settings.cards import GATHERING_US, MANY_INTERRUPTS, RxCoalescing
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow


def _additions(_plan: Plan, context: Context) -> Additions:
    known = context.snapshot.coalescing or ()
    cards = [each for each in known if each.target.key in context.places or _is_hasty(each)]
    whys = {each: _why_not(each) for each in cards if not each.usecs}
    return Additions(
        wanted=tuple(_wanted(each) for each in cards if not whys.get(each)),
        skipped=tuple(LeftOut(each.target, why) for each, why in whys.items() if why and not each.is_adaptive),
    )


def _objection(change: StateChange, _plan: Plan, context: Context) -> str:
    # The agent counts no packets.
    card = next(each for each in context.snapshot.coalescing or () if each.target.key == change.target.key)
    if change.after != Number(GATHERING_US):
        return f"a plan gives it {GATHERING_US} us, and no other time"
    if change.before != Number(0):
        return f"it gathers packets for {change.before} us already"
    return _why_not(card)


def _is_hasty(card: RxCoalescing) -> bool:
    return card.rate >= MANY_INTERRUPTS and not card.usecs and card.frames <= 1 and not card.is_adaptive


def _why_not(card: RxCoalescing) -> str:
    if card.is_adaptive:
        return "its driver adapts the time to the load"
    if card.frames:
        return f"it interrupts after {card.frames} packets at any time (rx-frames), which only a person changes"
    return ""


def _wanted(card: RxCoalescing) -> Wanted:
    if card.usecs or card.is_adaptive:
        return Wanted(card.target, CpuSet(), "in place", Number(card.usecs))
    why = "the card receives many packets, and interrupts the host for each of them"
    return Wanted(card.target, CpuSet(), why, Number(GATHERING_US))


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"ethtool -C {quote(target.name)} rx-usecs {state}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "coalescing",
    "a host whose coalescing of cards is known; this snapshot does not have it, so take a new one",
)
