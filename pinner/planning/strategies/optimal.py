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
    """The sets and the rules of isolated; a solver places the vCPUs where rules alone do not reach the bound."""

    name: ClassVar[str] = OPTIMAL
    summary: ClassVar[str] = "Like isolated, with a solver's proof that no other allocation of CPUs to vCPUs is better."
    parameters: ClassVar[tuple[str, ...]] = (*Isolated.parameters, "solver_budget")

    def place(self, context: Context) -> Answer:
        """The answer of isolated. A warning says why its allocation is not proven, if so."""
        # The request of a host names another strategy where only flavors ask for this one.
        answer = super().place(replace(context, request=replace(context.request, strategy=OPTIMAL)))
        return replace(answer, warnings=(*answer.warnings, *_unproven(answer.optimality)))


def _unproven(optimality: Optimality | None) -> Iterator[str]:
    if optimality and not optimality.proven:
        note = optimality.note or "guests that are placed already stay; plan a rebalance to place them anew"
        yield f"the allocation of CPUs is not proven to be the best one (gap {optimality.gap:.0%}): {note}"
