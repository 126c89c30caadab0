"""Each vCPU on a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."""

from dataclasses import replace
from typing import ClassVar

from pinner.model.plan.request import ISOLATED
from pinner.planning.request.context import Context
from pinner.planning.strategies.common import divided
from pinner.planning.strategies.strategy import COMMON, Answer


class Isolated:
    """Housekeeping and emulators on the CPUs that the kernel balances, each vCPU on a CPU that the kernel does not."""

    name: ClassVar[str] = ISOLATED
    summary: ClassVar[str] = (
        "Each vCPU gets a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "smt", "isolation")
    pursues: ClassVar[tuple[str, ...]] = ("extra_nodes", "remote_memory", "remote_devices", "shared_cores", "extra_l3")

    def place(self, context: Context) -> Answer:
        """Every guest that fits the isolated CPUs is placed; the others are unplaced, with the numbers.

        Where this boot isolates no CPU, no guest is placed, and the answer says how to isolate CPUs. Raises Invalid,
        NoFit (see roles.resolve).
        """
        # Imported here, because a plan of another strategy needs no packing.
        from pinner.planning.strategies import isolated_placement

        resolved = context.resolve(isolating=True)
        context, left_out = divided(context, resolved.roles)
        answer = isolated_placement.place(context, resolved)
        return replace(answer, unplaced=(*left_out, *answer.unplaced))
