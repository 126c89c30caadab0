from collections.abc import Mapping
from typing import Any

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.kinds import KINDS, Number, State, TargetKind
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot

WORK = Target("workqueue", "", None, "unbound kernel work")


def settings(snapshot: Snapshot) -> dict[Target, State]:
    states: dict[Target, State] = {
        cgroup_target(cgroup.path): cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups
    }
    if unbound := snapshot.topology.kernel.unbound:
        states[WORK] = unbound
    for kind in KINDS.values():
        if kind.remedy:
            states |= _states(kind.label, getattr(snapshot, kind.module))
    return states


def _states(kind: TargetKind, field: Any) -> dict[Target, State]:
    if isinstance(field, Mapping):
        return {Target(kind, name, None, name): Number(value) for name, value in field.items()}
    values = field if isinstance(field, tuple) else () if field is None else (field,)
    return {target: state for value in values for target, state in value.states.items()}


def cgroup_target(path: str) -> Target:
    return Target("partition", path, None, path.rpartition("/")[2])


def partitioned(snapshot: Snapshot, request: Request) -> CpuSet:
    """What a request for live isolation may allocate."""
    if request.isolation != "live":
        return CpuSet()
    states = (cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups)
    return union(state.cpus for state in states if state.kind != "member" and not state.invalid)
