"""The sysctls of model/settings/sysctls.py. One with its value already, or a better one, stays."""

from collections.abc import Iterator, Mapping
from shlex import quote

from pinner.model.change import AffinityChange, StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.plan.request import Request
from pinner.model.settings.sysctls import SYSCTLS, Need, SysctlRule
from pinner.model.snapshot import Snapshot, starving_cpus, with_affinities
from pinner.model.states import Number, State
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    values = context.snapshot.sysctls or {}
    asked = (rule for rule in SYSCTLS.values() if _is_asked(rule, plan.request))
    rules = [rule for rule in asked if is_needed(rule.needs, context.snapshot)]
    left = {rule: why for rule in rules if (why := _obstacle(rule, plan, context))}
    wanted = [rule for rule in rules if rule not in left]
    return Additions(tuple(_wanted(wanted, values)), tuple(LeftOut(rule.target, why) for rule, why in left.items()))


def _obstacle(rule: SysctlRule, plan: Plan, context: Context) -> str:
    if rule.key not in (context.snapshot.sysctls or {}):
        return "this kernel has no such sysctl"
    return _harm(rule, plan, context)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    # The change begins with the sysctl's present value, otherwise the apply refuses it as stale.
    rule = SYSCTLS[change.target.owner]
    if not _is_asked(rule, plan.request):
        return "it cures none of the findings that the plan's request names"
    if change.after != Number(rule.value):
        return f"a plan gives it the value {rule.value}, and no other"
    if isinstance(change.before, Number) and rule.is_good(change.before.value):
        return f"it has the value {change.before}, which is as good or better, and stays"
    if not is_needed(rule.needs, context.snapshot):
        return f"only a host with {rule.needs} needs it"
    return _harm(rule, plan, context)


def _harm(rule: SysctlRule, plan: Plan, context: Context) -> str:
    """Empty: none."""
    if rule.needs != "real-time vCPUs":
        return ""
    changes = (change for change in plan.changes if isinstance(change, AffinityChange))
    masks = {thread.tid: change.after for change in changes for thread in change.before}
    cpus = starving_cpus(with_affinities(context.snapshot, masks))
    return f"threads that have only CPUs {cpus} would never run beside real-time vCPUs" if cpus else ""


def _is_asked(rule: SysctlRule, request: Request) -> bool:
    return "sysctls" in request.remedies or not set(rule.codes).isdisjoint(request.fix)


def is_needed(need: Need, snapshot: Snapshot) -> bool:
    match need:
        case "several nodes":
            return sum(1 for node in snapshot.topology.nodes if node.cpus and node.memory_kib) > 1
        case "real-time vCPUs":
            vcpus = (vcpu.thread for guest in snapshot.guests for vcpu in guest.vcpus)
            return any(thread is not None and thread.realtime in ("fifo", "rr") for thread in vcpus)
    return True


def _wanted(rules: list[SysctlRule], values: Mapping[str, int]) -> Iterator[Wanted]:
    for rule in rules:
        if (value := values.get(rule.key)) is not None:
            why = "in place" if rule.is_good(value) else rule.why
            yield Wanted(rule.target, CpuSet(), why, rule.wanted(value))


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"sysctl -w {quote(target.owner)}={state}"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "sysctls",
    "a host whose sysctls are known; this snapshot has none, so take a new one",
)
