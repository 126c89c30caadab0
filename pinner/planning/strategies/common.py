"""Parts of answers that strategies have in common."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.plan import LeftOut, Roles, Wanted
from pinner.planning.available.numa import VcpuGroup
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice

_BESIDE = {
    "emulator": "QEMU's own threads run off the vCPUs' CPUs",
    "vhost": "a kernel thread of the guest's devices runs beside its emulator",
    "iothread": "QEMU's I/O work runs beside the emulator, off the vCPUs' CPUs",
}
"""An iothread polls and can use a whole CPU: on a vCPU's CPU it would stall the guest."""


def place_host_processes(context: Context, roles: Roles) -> Iterator[Wanted]:
    for move in context.moving:
        yield Wanted(move.target, roles.housekeeping, move.reason)


def place_emulator(guest: Guest, cpus: CpuSet) -> Iterator[Wanted]:
    for target in guest.threads_by_target:
        if target.kind == "vcpu":
            break
        yield Wanted(target, cpus, _BESIDE[target.kind])


def float_over(guest: Guest, group: VcpuGroup, cpus: CpuSet, reason: str) -> Iterator[Wanted]:
    for vcpu in group.vcpus:
        yield Wanted(guest.vcpu_targets[vcpu], group.within(cpus), group.why or reason)


def divided(context: Context, roles: Roles) -> tuple[Context, tuple[LeftOut, ...]]:
    """The guests whose nodes have CPUs of each set, and the others: only bound guests can be left out."""
    left_out = tuple(
        LeftOut(guest.target, why)
        for guest in context.guests
        if (guest.uuid in context.bounds or guest.uuid in context.cores) and (why := _lacking(context, guest, roles))
    )
    out = {each.target.owner for each in left_out}
    return replace(context, guests=tuple(guest for guest in context.guests if guest.uuid not in out)), left_out


def beside(context: Context, resolved: Resolved, guest: Guest, nodes: Iterable[NodeId]) -> CpuSet:
    """The emulator set of these nodes; of all nodes where these have none."""
    near = union([resolved.emulator_on[node] for node in nodes if node in resolved.emulator_on])
    return context.near(guest, near) or context.near(guest, resolved.roles.emulator)


def why_here(context: Context, guest: Guest, nodes: Iterable[NodeId]) -> str:
    bound = "; ".join([group.why for group in context.groups(guest) if group.why])
    return bound or "; ".join([node_choice.reason(context.snapshot, guest, node) for node in nodes])


def _lacking(context: Context, guest: Guest, roles: Roles) -> str:
    for group in context.groups(guest):
        if not group.within(roles.vcpu):
            why = group.why or f"the guest may only use CPUs {group.cpus}"
            return f"{why}, where the vCPU set ({roles.vcpu}) has no CPU"
    if not context.near(guest, roles.emulator):
        whys = "; ".join(group.why for group in context.groups(guest))
        return f"{whys}, where the emulator set ({roles.emulator}) has no CPU"
    return ""


def pin(guest: Guest, cpus: Mapping[int, int], reason: str) -> Iterator[Wanted]:
    """``cpus`` by the vCPU's number."""
    targets = guest.vcpu_targets
    for vcpu, cpu in cpus.items():
        yield Wanted(targets[vcpu], CpuSet.one(cpu), reason)


def floating_warnings(context: Context, roles: Roles) -> Iterable[str]:
    shared = roles.cpus & context.snapshot.topology.nohz_full
    if shared:
        yield f"CPUs {shared} are nohz_full, but several threads share each of them: their timer tick does not stop"
