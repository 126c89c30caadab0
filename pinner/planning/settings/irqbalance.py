"""irqbalance's banned CPUs: a plan adds those of guests, and takes none away. irqbalance forgets them when it ends; a
policy sets them again."""

from collections.abc import Iterator

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.machine.interrupts import Balancer
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.states import State, cpus_of
from pinner.planning.request.context import Context
from pinner.planning.settings.irqs import guest_cpus
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    guests, online = guest_cpus(context, plan), context.snapshot.topology.online
    balancers = context.snapshot.irqbalance or ()
    whys = {each: _why_not(each, guests, online) for each in balancers}
    return Additions.of(whys, lambda balancer: _wanted(balancer, guests))


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    before, after = cpus_of(change.before), cpus_of(change.after)
    if taken := before - after:
        return f"CPUs {taken} were banned before, and a plan only adds CPUs"
    if others := (after - before) - guest_cpus(context, plan):
        return f"CPUs {others} are not for guests"
    if after >= context.snapshot.topology.online:
        return "no CPU would be left for interrupts"
    return ""


def _why_not(balancer: Balancer, guests: CpuSet, online: CpuSet) -> str:
    if balancer.banned_now is None:
        return "it does not tell its banned CPUs: set IRQBALANCE_BANNED_CPULIST in its configuration, and restart it"
    if not guests <= balancer.banned_now and online <= balancer.banned_now | guests:
        return "no CPU would be left for interrupts"
    return ""


def _wanted(balancer: Balancer, guests: CpuSet) -> Wanted:
    """Of one that tells its banned CPUs."""
    before = balancer.banned_now or CpuSet()
    banned = before | guests
    why = f"it sends no interrupts to the CPUs of guests ({banned - before})"
    return Wanted(balancer.target, banned, "in place" if banned == before else why, banned)


def _commands(target: Target, state: State) -> Iterator[str]:
    path = f"/run/irqbalance/irqbalance{target.owner}.sock"
    yield f"printf 'settings cpus {state or 'NULL'}' | socat - UNIX-CONNECT:{path}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "the banned CPUs of irqbalance",
    "a host whose irqbalance is known; this snapshot does not have it, so take a new one",
)
