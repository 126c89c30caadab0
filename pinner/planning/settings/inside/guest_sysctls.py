"""Receive buffers of UDP inside guests. A larger one stays."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.inside import BUFFERS, RMEM_DEFAULT, GuestSysctls
from pinner.model.states import Number, State
from pinner.planning.request.context import Context
from pinner.planning.settings.inside.common import EXPECTED, STAYS, additions, guest_of, why_left_out
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    return additions("UDP buffers", context.snapshot.guest_sysctls, _wanted, plan, context)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    sysctls = guest_of(change.target, context.snapshot.guest_sysctls)
    if why := why_left_out(sysctls, plan, context):
        return why
    wanted = next(want for want in _wanted(sysctls) if want.target == change.target)
    if wanted.reason == STAYS:
        return f"it has the value {change.before}, and stays"
    if change.after != wanted.state:
        return f"a plan gives it the value {wanted.state}, and no other"
    return ""


def _wanted(sysctls: GuestSysctls) -> Iterator[Wanted]:
    """The buffer of programs that ask for none grows only where packets were lost: all of a guest's programs get it."""
    for key, value in sysctls.values.items():
        why = "programs may ask for receive buffers that hold a burst"
        if key == RMEM_DEFAULT:
            why = f"{sysctls.lost} UDP packets found a receive buffer full" if sysctls.lost else ""
        is_small = value < BUFFERS[key] and bool(why)
        number = Number(BUFFERS[key] if is_small else value)
        yield Wanted(sysctls.target(key), CpuSet(), why if is_small else STAYS, number)


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"# inside the guest: sysctl -w {quote(target.owner.split(' ')[2])}={state}"


ROW = PlanRow(_objection, _commands, _additions, "UDP buffers inside guests", EXPECTED)
