"""Partitions of cgroups. The strategies with live isolation plan them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Cgroup, Guest, own_vcpu_pins
from pinner.model.kinds import PartitionState, State, cpus_of
from pinner.model.plan.plan import Plan, Wanted
from pinner.planning.available.numa import bound_of
from pinner.planning.request.context import Context
from pinner.planning.settings.row import PlanRow

_MOUNT = "/sys/fs/cgroup"
_POSSIBLE = "/sys/devices/system/cpu/possible"


def why_not_asked(plan: Plan) -> str:
    """Empty where the request asks for partitions."""
    if plan.request.fix:
        return "the plan's request asks for the cure of findings, and no change of this kind cures one"
    return "" if plan.request.isolation == "live" else "the plan's request does not ask for live isolation"


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    if why := why_not_asked(plan):
        return why
    allocatable = context.allocatable
    remaining = allocatable.online - allocatable.isolated - cpus_of(change.after)
    return "" if remaining else "no CPU would be left for the host"


@dataclass(frozen=True, slots=True)
class WithoutCpus:
    """A guest without a partition of its own whose bound or pin has no CPU that the others' partitions leave: the
    kernel would let its threads run on any CPU of the slice (admin-guide/cgroup-v2.rst)."""

    guest: Guest
    slice_: str
    mask: CpuSet
    inside: CpuSet
    """Of these, the CPUs of the slice."""

    def __str__(self) -> str:
        return f"partitions in {self.slice_} would leave guest {self.guest.name} none of its CPUs {self.mask}"


def without_cpus(wanted: Iterable[Wanted], context: Context) -> Iterator[WithoutCpus]:
    """After all these changes together."""
    states = {want.target.owner: want.state for want in wanted if isinstance(want.state, PartitionState)}
    if not states:
        return

    def after(cgroup: Cgroup) -> PartitionState:
        return states.get(cgroup.path, cgroup.state)

    guests = [guest for guest in context.snapshot.guests if guest.cgroups]
    scopes = {g.uuid: after(g.cgroups[-1]).cpus for g in guests if after(g.cgroups[-1]).kind == "isolated"}
    taken = union(scopes.values())
    for guest in guests:
        slice_ = guest.cgroups[0]
        if guest.uuid in scopes or after(slice_).kind == "member":
            continue
        for mask in _masks(guest, context):
            if not mask & (after(slice_).cpus - taken):
                yield WithoutCpus(guest, slice_.path, mask, mask & after(slice_).cpus)


def _masks(guest: Guest, context: Context) -> Iterator[CpuSet]:
    """Pinner's own pins are no claim of its owner's."""
    masks = [pin.cpus for pin in guest.operator_pins]
    if any(guest.uuid == other.uuid for other in context.others):
        own = own_vcpu_pins(guest)
        masks += (mask for vcpu, mask in guest.vcpu_affinities.items() if mask != own.get(vcpu))
    if bound := bound_of(guest, context.snapshot.topology):
        masks += (group.cpus for group in bound.groups if group.cpus)
    yield from dict.fromkeys(here for mask in masks if (here := mask & context.allocatable.online))


def _commands(target: Target, state: State) -> Iterator[str]:
    if not isinstance(state, PartitionState):
        return
    folder = f"{_MOUNT}/{target.owner}"
    allow = f"systemctl set-property --runtime {_quoted(target.name)} AllowedCPUs={state.cpus}"
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
