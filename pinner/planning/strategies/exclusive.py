"""Each vCPU on a CPU of its own, all of a guest on one NUMA node, without isolation: the plan gives this CPU to no
other thread."""

from dataclasses import replace
from typing import ClassVar

from pinner.model.plan.request import EXCLUSIVE
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.cpu_allocator import allocate
from pinner.planning.strategies.isolated import Isolated, placed_one_to_one
from pinner.planning.strategies.strategy import COMMON, Answer, divided


class Exclusive:
    name: ClassVar[str] = EXCLUSIVE
    summary: ClassVar[str] = (
        "Each vCPU gets a CPU of its own, all of a guest on one NUMA node, without isolation and without a reboot."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "vcpus", "smt")
    pursues: ClassVar[tuple[str, ...]] = Isolated.pursues

    def place(self, context: Context) -> Answer:
        """Raises Invalid, NoFit (see roles.resolve)."""
        resolved = context.resolve(apart=True)
        own = resolved.roles.vcpu - resolved.roles.housekeeping - resolved.roles.emulator
        roles = replace(resolved.roles, vcpu=own)
        context, left_out = divided(context, roles, apart=True)
        allocation = allocate(context, own)
        allocation, wanted = placed_one_to_one(context, resolved, roles, allocation, self, "a CPU of its own")
        unplaced = (*left_out, *allocation.unplaced)
        return Answer(roles, wanted, unplaced, resolved.warnings, optimality=allocation.optimality)
