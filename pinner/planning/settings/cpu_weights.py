"""The guests' CPU weight. On shared CPUs, the kernel first divides the time among the slices, all guests being one. A
weight that somebody has set stays."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import AffinityChange, StateChange, Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.settings.cpu_weights import DEFAULT, RAISED, SLICE, WEIGHT, why_not
from pinner.model.states import Number, PartitionState, State
from pinner.planning.request.context import Context, vcpu_masks
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    weight = (context.snapshot.cpu_weights or {}).get(SLICE)
    if not _masks(plan, context):
        return Additions()
    if weight is not None and weight >= RAISED.value:
        return Additions(wanted=(Wanted(WEIGHT, CpuSet(), "in place", Number(weight)),))
    if why := _why_not(weight, plan, context):
        return Additions(skipped=(LeftOut(WEIGHT, why),))
    return Additions(wanted=(Wanted(WEIGHT, CpuSet(), "processes of the host leave more time to vCPUs", RAISED),))


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    # The change begins with the present weight, otherwise the apply refuses it as stale.
    if change.after != RAISED:
        return f"a plan gives it the weight {RAISED}, and no other"
    before = change.before.value if isinstance(change.before, Number) else None
    return _why_not(before, plan, context)


def _why_not(weight: int | None, plan: Plan, context: Context) -> str:
    states = (change.after for change in plan.changes if isinstance(change, StateChange))
    isolated = union(s.cpus for s in states if isinstance(s, PartitionState) and s.kind == "isolated")
    snapshot = context.snapshot
    balanced = snapshot.topology.online - snapshot.topology.isolated - isolated
    return why_not(weight, union(_masks(plan, context)), balanced, snapshot.slices)


def _masks(plan: Plan, context: Context) -> tuple[CpuSet, ...]:
    moved = (Wanted(each.target, each.after, "") for each in plan.changes if isinstance(each, AffinityChange))
    return tuple(vcpu_masks(context.snapshot, moved).values())


def _commands(target: Target, state: State) -> Iterator[str]:
    if state != DEFAULT:
        yield f"systemctl set-property --runtime {quote(target.name)} CPUWeight={state}"
    else:
        yield f"systemctl set-property --runtime {quote(target.name)} CPUWeight="
        yield f"rm -f /run/systemd/system.control/{quote(target.name)}.d/50-CPUWeight.conf"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "CPU weights",
    "a host whose CPU weights are known; this snapshot has none, so take a new one",
)
