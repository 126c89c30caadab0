"""Energy preferences (EPP): performance for the CPUs of vCPUs and of QEMU's own threads. Housekeeping CPUs keep theirs,
and so does a CPU whose power Nova manages."""

from collections.abc import Collection, Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.kinds import QEMUS_OWN
from pinner.model.machine.process import Thread
from pinner.model.machine.topology import FAST
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.power import PERFORMANCE, EnergyDomain
from pinner.model.snapshot import Snapshot, restricted, vcpu_cpus
from pinner.model.states import State
from pinner.planning.request.context import Context
from pinner.planning.settings.power.governors import of_vcpus, why_nova
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    theirs = of_guests(plan, context)
    whys = {each: _why_not(each, context) for each in context.snapshot.epp or () if each.cpus & theirs}
    return Additions.of(whys, _wanted)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    domain = next(each for each in context.snapshot.epp or () if each.target.key == change.target.key)
    if change.after != PERFORMANCE:
        return f"a plan gives it the preference {PERFORMANCE}, and no other"
    if why := _why_not(domain, context):
        return why
    return "" if domain.cpus & allowed(plan, context) else "it has no CPU of guests"


def _why_not(domain: EnergyDomain, context: Context) -> str:
    if domain.preference == PERFORMANCE:
        return ""
    if PERFORMANCE.word not in domain.offered:
        return f"its driver offers {', '.join(domain.offered) or 'no preference by name'}, and not {PERFORMANCE}"
    if domain.governor == FAST.name:
        return f"with the governor {FAST}, drivers refuse {domain.preference}, so no rollback could restore it"
    return why_nova(domain.cpus, context)


def of_guests(plan: Plan, context: Context) -> CpuSet:
    """CPUs of vCPUs and of QEMU's own threads after the plan."""
    placed = {want.target: want.cpus for want in plan.wanted if want.target.kind in QEMUS_OWN}
    staying = restricted(_own_threads(context.snapshot, placed), context.snapshot)
    return of_vcpus(plan, context) | union(placed.values()) | staying


def _own_threads(snapshot: Snapshot, without: Collection[Target] = ()) -> Iterator[Thread]:
    """QEMU's own."""
    for guest in snapshot.guests:
        for target, threads in guest.threads_by_target.items():
            if target.kind in QEMUS_OWN and target not in without:
                yield from threads


def allowed(plan: Plan, context: Context) -> CpuSet:
    """CPUs of guests, for all that an agent believes."""
    own = restricted(_own_threads(context.snapshot), context.snapshot)
    theirs = plan.roles.vcpu | plan.roles.emulator | vcpu_cpus(context.snapshot) | own
    return theirs | context.allocatable.reserved | context.of_others


def _wanted(domain: EnergyDomain) -> Wanted:
    is_new = domain.preference != PERFORMANCE
    return Wanted(domain.target, CpuSet(), "a busy CPU gets its full frequency" if is_new else "in place", PERFORMANCE)


def _commands(target: Target, state: State) -> Iterator[str]:
    file = f"/sys/devices/system/cpu/cpufreq/policy{target.part}/energy_performance_preference"
    yield f"echo {quote(str(state))} > {file}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "energy preferences",
    "a host whose energy preferences are known; this snapshot has none, so take a new one",
)
