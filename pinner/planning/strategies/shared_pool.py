"""The default strategy, best in measurements: every vCPU floats over all CPUs without housekeeping and emulators."""

from typing import ClassVar

from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import (
    COMMON,
    Answer,
    divided,
    float_over,
    floating_warnings,
    place_beside,
    place_host_processes,
)

_REASON = "floats over all CPUs that housekeeping and emulators leave"


class SharedPool:
    name: ClassVar[str] = "shared-pool"
    summary: ClassVar[str] = (
        "Busy host processes and emulator threads get CPUs of their own; every vCPU floats over all the others."
    )
    parameters: ClassVar[tuple[str, ...]] = COMMON
    pursues: ClassVar[tuple[str, ...]] = ()

    def place(self, context: Context) -> Answer:
        resolved = context.resolve()
        roles = resolved.roles
        wanted = list(place_host_processes(context, roles))
        context, unplaced = divided(context, roles)
        for guest in context.guests:
            wanted += place_beside(context, resolved, guest)
            for group in context.groups(guest):
                wanted += float_over(guest, group, roles.vcpu, _REASON)
        return Answer(roles, tuple(wanted), unplaced, (*resolved.warnings, *floating_warnings(context, roles)))
