"""The sysctls of model/settings/sysctls.py. One with its value already, or a better one, stays."""

from collections.abc import Iterator, Mapping
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.plan.request import Request
from pinner.model.settings.sysctls import SYSCTLS, Need, SysctlRule
from pinner.model.snapshot import Snapshot
from pinner.model.states import Number, State
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    values = context.snapshot.sysctls or {}
    asked = (rule for rule in SYSCTLS.values() if _is_asked(rule, plan.request))
    rules = [rule for rule in asked if is_needed(rule.needs, context.snapshot)]
    missing = (LeftOut(rule.target, "this kernel has no such sysctl") for rule in rules if rule.key not in values)
    return Additions(tuple(_wanted(rules, values)), tuple(missing))


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
    return ""


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
