"""Resume latencies: the CPUs of guests may not sleep so deeply that a packet waits for them. A CPU without such an idle
state, or with a stricter limit, keeps its limit, and so does one whose power Nova manages."""

from collections.abc import Iterator

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.power import DEEP_US, SHALLOW, WakeLimit
from pinner.model.states import State
from pinner.planning.request.context import Context
from pinner.planning.settings.power.epp import allowed, of_guests
from pinner.planning.settings.power.governors import of_vcpus, why_nova
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    # The finding is about the CPUs of vCPUs alone.
    is_asked = "resume-latency" in plan.request.remedies
    theirs = of_guests(plan, context) if is_asked else of_vcpus(plan, context)
    sleeping = [each for each in context.snapshot.resume_latency or () if each.cpu in theirs and _sleeps(each)]
    return Additions.of({each: _why_nova(each, context) for each in sleeping}, _wanted)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    limit = next(each for each in context.snapshot.resume_latency or () if each.target.key == change.target.key)
    if change.after != SHALLOW:
        return f"a plan gives it {SHALLOW} us, and no other limit"
    if limit.is_shallow:
        return f"it has the limit {limit.limit}, which stays"
    if not _sleeps(limit):
        return f"it has no idle state with {DEEP_US} us or more to wake"
    if why := _why_nova(limit, context):
        return why
    return "" if limit.cpu in allowed(plan, context) else "it is no CPU of guests"


def _sleeps(limit: WakeLimit) -> bool:
    return limit.slowest_us >= DEEP_US


def _why_nova(limit: WakeLimit, context: Context) -> str:
    return "" if limit.is_shallow else why_nova(CpuSet.of([limit.cpu]), context)


def _wanted(limit: WakeLimit) -> Wanted:
    if limit.is_shallow:
        return Wanted(limit.target, CpuSet(), "in place", limit.limit)
    return Wanted(limit.target, CpuSet(), f"no packet waits {limit.slowest_us} us for a CPU that wakes", SHALLOW)


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"echo {state} > /sys/devices/system/cpu/cpu{target.owner}/power/pm_qos_resume_latency_us"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "resume latencies",
    "a host whose resume latencies are known; this snapshot has none, so take a new one",
)
