"""Partitions of cgroups. The strategies with live isolation plan them."""

from collections.abc import Iterator

from pinner.model.change import StateChange, Target
from pinner.model.machine.process import host_unit
from pinner.model.plan.plan import Plan
from pinner.model.states import PartitionState, State, cpus_of
from pinner.planning.request.context import Context
from pinner.planning.settings.row import PlanRow

_MOUNT = "/sys/fs/cgroup"
_POSSIBLE = "/sys/devices/system/cpu/possible"


def why_not_asked(plan: Plan) -> str:
    if plan.request.fix:
        return "the plan's request asks for the cure of findings, and no change of this kind cures one"
    return "" if plan.request.isolation == "live" else "the plan's request does not ask for live isolation"


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    if why := why_not_asked(plan):
        return why
    allocatable = context.allocatable
    remaining = allocatable.online - allocatable.isolated - cpus_of(change.after)
    return "" if remaining else "no CPU would be left for the host"


def _commands(target: Target, state: State) -> Iterator[str]:
    if not isinstance(state, PartitionState):
        return
    folder = f"{_MOUNT}/{target.owner}"
    allow = f"systemctl set-property --runtime {_quoted(host_unit(target.owner))} AllowedCPUs={state.cpus}"
    become = f"echo {state.kind} > {_quoted(f'{folder}/cpuset.cpus.partition')}"
    if state.kind == "member":
        own = state.cpus or f"$(cat {_POSSIBLE})"
        yield from (become, allow, f"echo {own} > {_quoted(f'{folder}/cpuset.cpus')}")
    else:
        check = f"cat {_quoted(f'{folder}/cpuset.cpus.partition')}  # must say: {state.kind}; else it says why not"
        yield from (allow, become, check)


def _quoted(name: str) -> str:
    """Always, because most of these names have backslashes."""
    return "'" + name.replace("'", """'"'"'""") + "'"


ROW = PlanRow(_objection, _commands)
