"""A probe that has ended: the drops are lower with the first plan, and one window does not count."""

from support.values import NOON

from pinner.model.outcome.outcome import CURRENT, PLANNED, Arm, Probe, Window
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import Caller
from pinner.outcome.ranking import with_result


def ended_probe(
    name: str, plans: list[Plan], windows: int, seconds: int, caller: Caller, guest: str, *, keep: bool = False
) -> Probe:
    best, *others = [plan.request.strategy for plan in plans] if len(plans) > 1 else [PLANNED]
    order: tuple[Arm, ...] = (best, CURRENT, *others) * windows
    counted = [Window(arm, {"drops": 50.0 * (arm != best) + n % 3}) for n, arm in enumerate(order)]
    probe = Probe(
        id=name,
        host=plans[0].host,
        plans=tuple(plan.id for plan in plans),
        arms=(CURRENT, best, *others),
        actor=caller.actor,
        origin=caller.origin,
        state="ended",
        started_at=NOON,
        order=order,
        seconds=seconds,
        guests=(guest,),
        keep=keep,
        windows=(*counted, Window(best, {}, {}, f"guest {guest} migrates")),
        ended_at=NOON,
        kept="run-9" if keep else "",
    )
    return with_result(probe)
