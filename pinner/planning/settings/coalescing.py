"""Interrupt coalescing. Few packets have the shortest delay without it, so only cards with many packets get some.

A driver that adapts the time to the load can be the cause of drops and of pings that swing: only a request that names
this finding ends the adaption.
"""

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.plan.request import Request
from pinner.model.settings.cards import ADAPTIVE, FIXED_US, GATHERING_US, MANY_INTERRUPTS, RxCoalescing
from pinner.model.states import Coalescing, State
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow

_GATHERED = Coalescing(GATHERING_US)


def _additions(_plan: Plan, context: Context) -> Additions:
    known, request = context.snapshot.coalescing or (), context.request
    cards = [card for card in known if card.target.key in context.places or _is_asked(card, request)]
    whys = {card: "" if card.usecs or card.is_adaptive else _why_not(card) for card in cards}
    return Additions.of(whys, lambda card: _wanted(card, request))


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    # The agent counts no packets.
    card = next(each for each in context.snapshot.coalescing or () if each.target.key == change.target.key)
    if card.is_adaptive and ADAPTIVE in plan.request.fix:
        return "" if change.after == card.fixed else f"a plan gives it {card.fixed}, and nothing else"
    if change.after != _GATHERED:
        return f"a plan gives it {GATHERING_US} us, and no other time"
    if isinstance(change.before, Coalescing) and change.before.usecs:
        return f"it gathers packets for {change.before.usecs} us already"
    return _why_not(card)


def _is_asked(card: RxCoalescing, request: Request) -> bool:
    if card.rate < MANY_INTERRUPTS:
        return False
    if card.is_adaptive:
        return ADAPTIVE in request.fix
    return _gathers(request) and not card.usecs and card.frames <= 1


def _gathers(request: Request) -> bool:
    return "coalescing" in request.remedies or "nic-no-coalescing" in request.fix


def _why_not(card: RxCoalescing) -> str:
    if card.is_adaptive:
        return "its driver adapts the time to the load"
    if card.frames:
        return f"it interrupts after {card.frames} packets at any time (rx-frames), which only a person changes"
    return ""


def _wanted(card: RxCoalescing, request: Request) -> Wanted:
    if card.is_adaptive and ADAPTIVE in request.fix:
        why = "its driver adapts the interrupts to the load, which can drop packets and delay pings"
        return Wanted(card.target, CpuSet(), why, card.fixed)
    if card.usecs or card.is_adaptive or not _gathers(request):
        return Wanted(card.target, CpuSet(), "in place", card.states[card.target])
    why = "the card receives many packets, and interrupts the host for each of them"
    return Wanted(card.target, CpuSet(), why, _GATHERED)


def _commands(target: Target, state: State) -> Iterator[str]:
    # No card but one whose driver adapted the time gets this one.
    ends = isinstance(state, Coalescing) and state.usecs == FIXED_US and not state.is_adaptive
    if isinstance(state, Coalescing) and state.is_adaptive:
        yield from _commands(target, replace(state, is_adaptive=False))  # a driver that adapts its numbers takes none
    yield f"ethtool -C {quote(target.name)} {'adaptive-rx off ' if ends else ''}{state}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "coalescing",
    "a host whose coalescing of cards is known; this snapshot does not have it, so take a new one",
)
