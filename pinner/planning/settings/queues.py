"""The queues of cards. A card that uses several keeps them: somebody has chosen their number."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.cards import CardQueues, fitting_queues
from pinner.model.states import Number, State
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow


def _additions(_plan: Plan, context: Context) -> Additions:
    known = context.snapshot.queues or ()
    cards = [each for each in known if each.target.key in context.places or (each.is_up and _is_alone(each, context))]
    wanted = tuple(_wanted(each, context) for each in cards)
    growing = (each.interface for each in cards if each.count == 1)
    return Additions(
        wanted=wanted,
        warnings=tuple(
            f"{name}: most drivers restart the card for another number of queues, and its interrupts may get all CPUs; "
            "a plan --with irqs that is made after the apply places them"
            for name in growing
        ),
    )


def _objection(change: StateChange, _plan: Plan, context: Context) -> str:
    card = next(each for each in context.snapshot.queues or () if each.target.key == change.target.key)
    fitting = _fitting(card, context)
    if change.before != Number(1):
        return f"it uses {change.before} queues already"
    if change.after != Number(fitting):
        return f"a plan gives it {fitting} queues, and no other number"
    return ""


def _is_alone(card: CardQueues, context: Context) -> bool:
    return card.count == 1 and _fitting(card, context) > 1


def _fitting(card: CardQueues, context: Context) -> int:
    return fitting_queues(card.interface, card.most, context.snapshot.topology)


def _wanted(card: CardQueues, context: Context) -> Wanted:
    if not _is_alone(card, context):
        return Wanted(card.target, CpuSet(), "in place", Number(card.count))
    why = f"the card uses one of {card.most} queues, so one CPU handles all its packets"
    return Wanted(card.target, CpuSet(), why, Number(_fitting(card, context)))


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"ethtool -L {quote(target.name)} combined {state}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "queues of cards",
    "a host whose queues of cards are known; this snapshot does not have them, so take a new one",
)
