"""Each vCPU on an isolated CPU of its own, all of a guest on one NUMA node."""

from dataclasses import replace
from typing import ClassVar

from pinner.model.plan.plan import LeftOut
from pinner.model.plan.request import ISOLATED
from pinner.planning.available import isolation
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context
from pinner.planning.strategies import isolated_live
from pinner.planning.strategies.allocator.cpu_allocator import Allocation, allocate
from pinner.planning.strategies.common import beside, divided, pin, place_emulator, place_host_processes, why_here
from pinner.planning.strategies.strategy import COMMON, Answer


class Isolated:
    name: ClassVar[str] = ISOLATED
    summary: ClassVar[str] = (
        "Each vCPU gets a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "smt", "isolation")
    pursues: ClassVar[tuple[str, ...]] = ("extra_nodes", "remote_memory", "remote_devices", "shared_cores", "extra_l3")

    def place(self, context: Context) -> Answer:
        """Where this boot isolates no CPU, the answer says how to isolate CPUs. Raises Invalid, NoFit (see
        roles.resolve)."""
        # Imported here, because a plan of another strategy needs no packing.

        resolved = context.resolve(isolating=True)
        context, left_out = divided(context, resolved.roles)
        answer = place(context, resolved)
        return replace(answer, unplaced=(*left_out, *answer.unplaced))


def place(context: Context, resolved: Resolved) -> Answer:
    exclusive = context.allocatable.exclusive
    allocation = allocate(context, exclusive)
    lacking = resolved.roles.vcpu - exclusive
    if lacking and context.request.isolation == "live" and (allocation.unplaced or not exclusive):
        live = isolated_live.place(context, resolved)
        if not exclusive or (not live.blocked and len(live.unplaced) < len(allocation.unplaced)):
            return live
    if lacking and not exclusive:
        return _not_isolated(context, resolved)
    return _placed(context, resolved, allocation)


def _placed(context: Context, resolved: Resolved, allocation: Allocation) -> Answer:
    exclusive, topology = context.allocatable.exclusive, context.snapshot.topology
    roles = replace(resolved.roles, vcpu=exclusive)
    wanted = list(place_host_processes(context, roles))
    for guest in context.guests:
        if found := allocation.places.get(guest.uuid):
            wanted += place_emulator(guest, beside(context, resolved, guest, found.nodes))
            wanted += pin(guest, found.cpus, f"an isolated CPU of its own; {why_here(context, guest, found.nodes)}")
    unplaced = _with_remedy(context, resolved, allocation.unplaced)
    # More isolated CPUs are worth a reboot only if another guest then fits.
    goal = exclusive if unplaced == allocation.unplaced else resolved.roles.vcpu
    return Answer(
        roles,
        tuple(wanted),
        unplaced,
        (*resolved.warnings, *isolation.lacking(topology, exclusive)),
        isolation.describe(topology.kernel, goal, exclusive),
        optimality=allocation.optimality,
    )


def _not_isolated(context: Context, resolved: Resolved) -> Answer:
    roles, kernel = resolved.roles, context.snapshot.topology.kernel
    needs = isolation.describe(kernel, roles.vcpu, context.allocatable.exclusive)
    never_fit = {left.target: left for left in allocate(context, roles.vcpu).unplaced}
    unplaced = (
        never_fit.get(
            guest.target,
            LeftOut(
                guest.target,
                f"its {len(guest.plugged)} vCPUs need isolated CPUs on one node; {_remedy(context, resolved)}",
            ),
        )
        for guest in context.guests
    )
    live = ", or make the live cgroup partition" if needs.partition else ""
    return Answer(
        roles,
        tuple(place_host_processes(context, roles)),
        tuple(unplaced),
        resolved.warnings,
        needs,
        blocked=f"CPUs {roles.vcpu} are not isolated: reboot with {needs.kernel_arguments}{live}",
    )


def _with_remedy(context: Context, resolved: Resolved, unplaced: tuple[LeftOut, ...]) -> tuple[LeftOut, ...]:
    wanted = resolved.roles.vcpu
    if not unplaced or wanted <= context.allocatable.exclusive:
        return unplaced
    never_fit = {left.target for left in allocate(context, wanted).unplaced}
    return tuple(
        left if left.target in never_fit else replace(left, why=f"{left.why}; {_remedy(context, resolved)}")
        for left in unplaced
    )


def _remedy(context: Context, resolved: Resolved) -> str:
    wanted = resolved.roles.vcpu
    return f"this boot isolates {len(context.allocatable.exclusive)} of the {len(wanted)} CPUs wanted ({wanted})"
