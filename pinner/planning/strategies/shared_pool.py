"""The default strategy, best in measurements: every vCPU floats over all CPUs without housekeeping and emulators."""

from typing import ClassVar

from pinner.model.plan.plan import Roles
from pinner.planning.request import siblings
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import (
    COMMON,
    Answer,
    divided_to_float,
    float_over,
    floating_warnings,
    place_beside,
    place_host_processes,
)


def _reason(roles: Roles, cpus: str) -> str:
    shared = roles.vcpu & (roles.housekeeping | roles.emulator)
    if not shared:
        return f"floats over {cpus} that housekeeping and emulators leave"
    return f"floats over {cpus} for vCPUs; others use CPUs {shared} too"


class SharedPool:
    name: ClassVar[str] = "shared-pool"
    summary: ClassVar[str] = (
        "Busy host processes and emulator threads get CPUs of their own; every vCPU floats over all the others."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "vcpus", "smt")
    pursues: ClassVar[tuple[str, ...]] = ()

    def place(self, context: Context) -> Answer:
        resolved = context.resolve()
        roles = resolved.roles
        wanted = list(place_host_processes(context, roles))
        context, unplaced = divided_to_float(context, roles, {None: roles.vcpu}, crowd=False)
        for guest in context.guests:
            kind = siblings.WORDS.get(context.request.smt, "CPUs of one kind")
            why = _reason(roles, kind if guest.uuid in context.cores else "all CPUs")
            wanted += place_beside(context, resolved, guest)
            for group in context.groups(guest):
                wanted += float_over(context, guest, group, roles.vcpu, why)
        return Answer(roles, tuple(wanted), unplaced, (*resolved.warnings, *floating_warnings(context, roles)))
