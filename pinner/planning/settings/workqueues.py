"""The kernel's CPUs for unbound work, beside those of partitions."""

from collections.abc import Iterator

from pinner.model.change import StateChange, Target
from pinner.model.plan.plan import Plan
from pinner.model.states import State, cpus_of
from pinner.planning.request.context import Context
from pinner.planning.settings.partitions import why_not_asked
from pinner.planning.settings.row import PlanRow

_FILE = "/sys/devices/virtual/workqueue/cpumask"


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    if why := why_not_asked(plan):
        return why
    absent = cpus_of(change.after) - context.allocatable.online - context.snapshot.topology.kernel.unbound
    return f"CPUs {absent} are not online" if absent else ""


def _commands(_target: Target, state: State) -> Iterator[str]:
    yield f"echo {cpus_of(state).mask()} > {_FILE}"


ROW = PlanRow(_objection, _commands)
