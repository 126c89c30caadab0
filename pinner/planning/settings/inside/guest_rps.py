"""Receive packet steering (RPS) inside guests. A queue with RPS keeps its vCPUs: the guest's owner has chosen them."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import GuestCpus, State
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.planning.available.exclusions import is_excluded_guest
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    wanted: list[Wanted] = []
    skipped: list[LeftOut] = []
    for rps in context.snapshot.guest_rps or ():
        if why := _why_left_out(rps, plan, context):
            skipped.append(LeftOut(rps.as_target, f"its RPS stays: {why}"))
        else:
            wanted += (_wanted(rps, queue) for queue in rps.queues)
    changed = {want.target.owner.partition(" ")[0]: want.target.name for want in wanted if want.reason != _STAYS}
    return Additions(
        wanted=tuple(wanted),
        skipped=tuple(skipped),
        warnings=tuple(
            f"guest {name.rpartition(' ')[0]}: this changes the inside of the guest, until the guest restarts"
            for name in changed.values()
        ),
    )


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    guest = change.target.owner.partition(" ")[0]
    rps = next(each for each in context.snapshot.guest_rps or () if each.guest == guest)
    if why := _why_left_out(rps, plan, context):
        return why
    if change.before != GuestCpus(CpuSet()):
        return f"its RPS has vCPUs {change.before} already"
    if change.after != GuestCpus(rps.online):
        return f"a plan gives it the vCPUs {rps.online}, and no others"
    return ""


_STAYS = "in place"


def _why_left_out(rps: GuestRps, plan: Plan, context: Context) -> str:
    guest = next((each for each in context.snapshot.guests if each.uuid == rps.guest), None)
    if guest is None or is_excluded_guest(guest, plan.request):
        return "the guest is excluded"
    if plan.request.guests and not {guest.name, guest.uuid} & {*plan.request.guests}:
        return "the request names other guests"
    return rps.unread


def _wanted(rps: GuestRps, queue: GuestQueue) -> Wanted:
    if queue.vcpus:
        return Wanted(rps.target(queue), CpuSet(), _STAYS, GuestCpus(queue.vcpus))
    why = f"the card has fewer queues than the guest has vCPUs ({len(rps.online)}): all of them take its packets"
    return Wanted(rps.target(queue), CpuSet(), why, GuestCpus(rps.online))


def _commands(target: Target, state: State) -> Iterator[str]:
    mask = state.vcpus.mask() if isinstance(state, GuestCpus) else ""
    interface = target.owner.split(" ")[2]
    path = f"/sys/class/net/{quote(interface)}/queues/rx-{target.part}/rps_cpus"
    yield f"# inside the guest: echo {mask} > {path}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "RPS inside guests",
    "a host that asks the agents of its guests; set [libvirt] guest_agents = true in its pinner.conf, restart "
    "pinner there, and take a new snapshot",
)
