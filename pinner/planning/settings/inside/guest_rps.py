"""Receive packet steering (RPS) inside guests. A queue with RPS keeps its vCPUs: the guest's owner has chosen them."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.inside import GuestRps
from pinner.model.states import GuestCpus, State
from pinner.planning.request.context import Context
from pinner.planning.settings.inside.common import EXPECTED, STAYS, additions, guest_of, why_left_out
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    return additions("RPS", context.snapshot.guest_rps, _wanted, plan, context)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    rps = guest_of(change.target, context.snapshot.guest_rps)
    if why := why_left_out(rps, plan, context):
        return why
    if change.before != GuestCpus(CpuSet()):
        return f"its RPS has vCPUs {change.before} already"
    if change.after != GuestCpus(rps.online):
        return f"a plan gives it the vCPUs {rps.online}, and no others"
    return ""


def _wanted(rps: GuestRps) -> Iterator[Wanted]:
    why = f"the card has fewer queues than the guest has vCPUs ({len(rps.online)}): all of them take its packets"
    for queue in rps.queues:
        vcpus = queue.vcpus or rps.online
        yield Wanted(rps.target(queue), CpuSet(), STAYS if queue.vcpus else why, GuestCpus(vcpus))


def _commands(target: Target, state: State) -> Iterator[str]:
    mask = state.vcpus.mask() if isinstance(state, GuestCpus) else ""
    interface = target.owner.split(" ")[2]
    path = f"/sys/class/net/{quote(interface)}/queues/rx-{target.part}/rps_cpus"
    yield f"# inside the guest: echo {mask} > {path}"


ROW = PlanRow(_objection, _commands, _additions, "RPS inside guests", EXPECTED)
