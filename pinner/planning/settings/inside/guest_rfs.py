"""Receive flow steering (RFS) inside guests. Numbers that are set already stay: the guest's owner has chosen them."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.inside import FLOWS, GuestRfs
from pinner.model.states import Number, State
from pinner.planning.request.context import Context
from pinner.planning.settings.inside.common import EXPECTED, STAYS, additions, guest_of, why_left_out
from pinner.planning.settings.row import Additions, PlanRow

_WHY = "the vCPU of the program that reads a flow takes its packets"


def _additions(plan: Plan, context: Context) -> Additions:
    return additions("RFS", context.snapshot.guest_rfs, _wanted, plan, context)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    rfs = guest_of(change.target, context.snapshot.guest_rfs)
    if why := why_left_out(rfs, plan, context):
        return why
    if change.before != Number(0):
        return f"it has {change.before} flows already"
    if change.after != FLOWS:
        return f"a plan gives it {FLOWS} flows, and no other number"
    return ""


def _wanted(rfs: GuestRfs) -> Iterator[Wanted]:
    for target, state in rfs.states.items():
        yield Wanted(target, CpuSet(), STAYS if state != Number(0) else _WHY, FLOWS if state == Number(0) else state)


def _commands(target: Target, state: State) -> Iterator[str]:
    _, _, *queue = target.owner.split(" ")
    if not queue:
        yield f"# inside the guest: sysctl -w net.core.rps_sock_flow_entries={state}"
    else:
        interface, _, number = queue
        path = f"/sys/class/net/{quote(interface)}/queues/rx-{quote(number)}/rps_flow_cnt"
        yield f"# inside the guest: echo {state} > {path}"


ROW = PlanRow(_objection, _commands, _additions, "RFS inside guests", EXPECTED)
