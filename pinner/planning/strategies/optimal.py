"""Like isolated, with a solver's proof that no other allocation of CPUs to vCPUs is better."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from pinner.model.plan.objective import Optimality
from pinner.model.plan.request import OPTIMAL
from pinner.planning.request.context import Context
from pinner.planning.strategies.isolated import Isolated
from pinner.planning.strategies.strategy import Answer


class Optimal(Isolated):
    name: ClassVar[str] = OPTIMAL
    summary: ClassVar[str] = "Like isolated, with a solver's proof that no other allocation of CPUs to vCPUs is better."
    parameters: ClassVar[tuple[str, ...]] = (*Isolated.parameters, "solver_budget")

    def place(self, context: Context) -> Answer:
        """A warning says why the allocation is not proven."""
        # The request of a host names another strategy where only flavors ask for this one.
        answer = super().place(replace(context, request=replace(context.request, strategy=OPTIMAL)))
        return replace(answer, warnings=(*answer.warnings, *_unproven(answer.optimality)))


def _unproven(optimality: Optimality | None) -> Iterator[str]:
    if optimality and not optimality.proven:
        note = optimality.note or "guests that are placed already stay; plan a rebalance to place them anew"
        yield f"the allocation of CPUs is not proven to be the best one (gap {optimality.gap:.0%}): {note}"
