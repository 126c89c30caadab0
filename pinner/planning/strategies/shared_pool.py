"""The default strategy, best in measurements: every vCPU floats over all CPUs without housekeeping and emulators."""

from typing import ClassVar

from pinner.planning.context import Context
from pinner.planning.strategies.common import float_over, floating_warnings, place_emulator, place_host_processes
from pinner.planning.strategy import COMMON, Answer


class SharedPool:
    """Three CPU sets for the whole host."""

    name: ClassVar[str] = "shared-pool"
    summary: ClassVar[str] = (
        "Busy host processes and emulator threads get CPUs of their own; every vCPU floats over all the others."
    )
    parameters: ClassVar[tuple[str, ...]] = COMMON

    def place(self, context: Context) -> Answer:
        """Every guest is placed: any number of vCPUs can share the pool. Raises Invalid, NoFit (see roles.resolve)."""
        resolved = context.resolve()
        roles = resolved.roles
        wanted = list(place_host_processes(context, roles))
        for guest in context.guests:
            wanted += place_emulator(guest, roles.emulator)
            wanted += float_over(guest, roles.vcpu, "floats over all CPUs that housekeeping and emulators leave")
        return Answer(roles, tuple(wanted), warnings=(*resolved.warnings, *floating_warnings(context, roles)))
