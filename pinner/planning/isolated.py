"""Each vCPU on a CPU of its own that the kernel's scheduler leaves alone, all of a guest on one NUMA node."""

from typing import ClassVar

from pinner.model.plan import LeftOut, Roles
from pinner.planning import isolated_live, isolation, nodes
from pinner.planning.context import Context, plugged
from pinner.planning.placing import attend, keep_house, pin
from pinner.planning.roles import Resolved
from pinner.planning.seating import seat
from pinner.planning.strategy import COMMON, Answer


class Isolated:
    """Housekeeping and emulators on the CPUs that the kernel balances, vCPUs one by one on those that it does not."""

    name: ClassVar[str] = "isolated"
    summary: ClassVar[str] = (
        "Each vCPU gets a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "smt", "isolation")

    def place(self, context: Context) -> Answer:
        """Where this boot does not isolate what is needed, no guest is placed and the answer says what to do about it.

        Raises Invalid, NoFit (see roles.resolve).
        """
        resolved = context.resolve(isolating=True)
        reserved = context.supply.reserved
        seating = seat(context, reserved)
        enough = bool(reserved) and not seating.unplaced
        if not enough and not resolved.roles.vcpu <= reserved:
            live = context.request.isolation == "live"
            return isolated_live.place(context, resolved) if live else _not_isolated(context, resolved)
        roles = Roles(resolved.roles.housekeeping, resolved.roles.emulator, reserved, resolved.roles.notes)
        wanted = list(keep_house(context, roles))
        for guest in context.guests:
            if place := seating.places.get(guest.uuid):
                wanted += attend(guest, resolved.emulator_on.get(place.node, roles.emulator))
                why = f"an isolated CPU of its own; {nodes.reason(context.snapshot, guest, place.node)}"
                wanted += pin(guest, place.cpus, why)
        return Answer(
            roles,
            tuple(wanted),
            seating.unplaced,
            (*resolved.warnings, *isolation.lacking(context.snapshot.topology, reserved)),
            isolation.describe(context.snapshot.topology.kernel, reserved, reserved),
        )


def _not_isolated(context: Context, resolved: Resolved) -> Answer:
    """What would have to be isolated first; guests stay untouched, and those that would not fit then are told apart."""
    roles, reserved = resolved.roles, context.supply.reserved
    needs = isolation.describe(context.snapshot.topology.kernel, roles.vcpu, reserved)
    never = {left.name: left for left in seat(context, roles.vcpu).unplaced}
    unplaced = (
        never.get(
            f"guest {guest.name}",
            LeftOut(
                f"guest {guest.name}",
                f"its {len(plugged(guest))} vCPUs need isolated CPUs of one node; this boot isolates {len(reserved)} "
                f"of the {len(roles.vcpu)} wanted ({roles.vcpu})",
            ),
        )
        for guest in context.guests
    )
    live = ", or make the live cgroup partition" if needs.partition else ""
    return Answer(
        roles,
        tuple(keep_house(context, roles)),
        tuple(unplaced),
        resolved.warnings,
        needs,
        blocked=f"CPUs {roles.vcpu - reserved} are not isolated: reboot with {needs.kernel_arguments}{live}",
    )
