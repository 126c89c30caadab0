"""Each vCPU on a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."""

from typing import ClassVar

from pinner.model.plan import LeftOut, Roles
from pinner.planning import isolation
from pinner.planning.context import Context, guest_target, plugged
from pinner.planning.roles import Resolved
from pinner.planning.strategies import isolated_live, node_choice
from pinner.planning.strategies.common import pin, place_emulator, place_host_processes
from pinner.planning.strategies.cpu_allocator import allocate
from pinner.planning.strategy import COMMON, Answer


class Isolated:
    """Housekeeping and emulators on the CPUs that the kernel balances, each vCPU on a CPU that the kernel does not."""

    name: ClassVar[str] = "isolated"
    summary: ClassVar[str] = (
        "Each vCPU gets a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "smt", "isolation")

    def place(self, context: Context) -> Answer:
        """Where this boot isolates too few CPUs, no guest is placed, and the answer says how to isolate them.

        Raises Invalid, NoFit (see roles.resolve).
        """
        resolved = context.resolve(isolating=True)
        exclusive = context.allocatable.exclusive
        allocation = allocate(context, exclusive)
        enough = bool(exclusive) and not allocation.unplaced
        if not enough and not resolved.roles.vcpu <= exclusive:
            live = context.request.isolation == "live"
            return isolated_live.place(context, resolved) if live else _not_isolated(context, resolved)
        roles = Roles(resolved.roles.housekeeping, resolved.roles.emulator, exclusive, resolved.roles.notes)
        wanted = list(place_host_processes(context, roles))
        for guest in context.guests:
            if place := allocation.places.get(guest.uuid):
                wanted += place_emulator(guest, resolved.emulator_on.get(place.node, roles.emulator))
                why = f"an isolated CPU of its own; {node_choice.reason(context.snapshot, guest, place.node)}"
                wanted += pin(guest, place.cpus, why)
        return Answer(
            roles,
            tuple(wanted),
            allocation.unplaced,
            (*resolved.warnings, *isolation.lacking(context.snapshot.topology, exclusive)),
            isolation.describe(context.snapshot.topology.kernel, exclusive, exclusive),
        )


def _not_isolated(context: Context, resolved: Resolved) -> Answer:
    """The answer where CPUs must be isolated first: no guest is placed.

    For a guest that would not fit even then, that is the reason.
    """
    roles, exclusive = resolved.roles, context.allocatable.exclusive
    needs = isolation.describe(context.snapshot.topology.kernel, roles.vcpu, exclusive)
    never_fits = {left.target: left for left in allocate(context, roles.vcpu).unplaced}
    unplaced = (
        never_fits.get(
            guest_target(guest),
            LeftOut(
                guest_target(guest),
                f"its {len(plugged(guest))} vCPUs need isolated CPUs on one node; this boot isolates {len(exclusive)} "
                f"of the {len(roles.vcpu)} CPUs wanted ({roles.vcpu})",
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
        blocked=f"CPUs {roles.vcpu - exclusive} are not isolated: reboot with {needs.kernel_arguments}{live}",
    )
