"""Frequency governors: performance for the CPUs of vCPUs. One that does not lower the frequency stays, and so does that
of a CPU whose power Nova manages."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.machine.topology import FAST, FrequencyDomain, is_slow
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.power import PERFORMANCE
from pinner.model.snapshot import vcpu_cpus
from pinner.model.states import State
from pinner.planning.changes import staying
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow

_OF_TUNABLES = ("conservative", "ondemand")
"""Governors with whose end the kernel forgets their tunables."""


def _additions(plan: Plan, context: Context) -> Additions:
    theirs = of_vcpus(plan, context)
    domains = [each for each in context.snapshot.governors or () if each.cpus & theirs]
    whys = {each: why_nova(each.cpus, context) if is_slow(each.governor) else "" for each in domains}
    changed = [each for each, why in whys.items() if is_slow(each.governor) and not why]
    return Additions.of(
        whys,
        _wanted,
        (
            *(
                f"{each.target}: a rollback restores {each.governor} with the kernel's defaults for its tunables"
                for each in changed
                if each.governor.name in _OF_TUNABLES
            ),
            *_about_preferences(plan, context, union(each.cpus for each in changed)),
        ),
    )


def _about_preferences(plan: Plan, context: Context, cpus: CpuSet) -> Iterator[str]:
    """intel_pstate restores them with the governor, and amd-pstate does not."""
    changed = union(each.cpus for each in context.snapshot.epp or () if each.preference != PERFORMANCE) & cpus
    if changed and not plan.request.asks_for("epp"):
        yield (
            f"CPUs {changed}: the governor {FAST} sets their energy preference to {PERFORMANCE}, which may stay after "
            "a rollback; with epp, the rollback restores it"
        )


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    domain = next(each for each in context.snapshot.governors or () if each.target.key == change.target.key)
    if change.after != FAST:
        return f"a plan gives it the governor {FAST}, and no other"
    if not is_slow(change.before):
        return f"it has the governor {change.before}, which stays"
    if why := why_nova(domain.cpus, context):
        return why
    theirs = plan.roles.vcpu | vcpu_cpus(context.snapshot) | context.allocatable.reserved | context.of_others
    return "" if domain.cpus & theirs else "it has no CPU of guests"


def of_vcpus(plan: Plan, context: Context) -> CpuSet:
    """CPUs of vCPUs after the plan, and those that the host leaves to guests."""
    placed = {want.target.key: want.cpus for want in plan.wanted if want.target.kind == "vcpu"}
    return union(placed.values()) | staying(context.snapshot, placed) | context.allocatable.reserved


def why_nova(cpus: CpuSet, context: Context) -> str:
    novas = cpus & context.snapshot.power_managed
    return f"Nova manages the power of CPUs {novas} (cpu_power_management)" if novas else ""


def _wanted(domain: FrequencyDomain) -> Wanted:
    if not is_slow(domain.governor):
        return Wanted(domain.target, CpuSet(), "in place", domain.governor)
    return Wanted(domain.target, CpuSet(), "a vCPU that wakes finds its CPU at full frequency", FAST)


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"echo {quote(str(state))} > /sys/devices/system/cpu/cpufreq/policy{target.part}/scaling_governor"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "governors",
    "a host whose frequency governors are known; this snapshot has none, so take a new one",
)
