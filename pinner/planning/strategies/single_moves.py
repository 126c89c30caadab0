"""Moves of one guest at a time, as long as each lowers the objective of a fresh plan."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.plan.objective import compared
from pinner.model.plan.plan import Wanted
from pinner.planning.objective_terms import MeasuredPlacement, ObjectiveMeasure, weights
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Strategy, asked_terms


class Placed(Protocol):
    """A placement with its measured value."""

    @property
    def measured(self) -> MeasuredPlacement: ...


P = TypeVar("P", bound=Placed)
_MOST_ROUNDS = 16
"""In which each guest moves at most once: few placements need a third one."""


@dataclass(frozen=True, slots=True)
class SingleMoves:
    weights: Mapping[str, float]
    asked: frozenset[str]
    """Names of terms."""

    @classmethod
    def of(cls, context: Context, strategy: Strategy) -> "SingleMoves":
        return cls(weights(context.snapshot, context.request), asked_terms(strategy))

    def settled(self, begun: P, guests: Sequence[Guest], moved: Callable[[Guest, P], Iterable[P]]) -> P:
        """``moved``: placements in which the guest alone is elsewhere."""
        chosen = begun
        for _ in range(_MOST_ROUNDS):
            before = chosen
            for guest in guests:
                best = chosen
                for other in moved(guest, chosen):
                    if self.gain(best.measured, other.measured) > 0:
                        best = other
                chosen = best
            if chosen is before:
                break
        return chosen

    def gain(self, before: MeasuredPlacement, after: MeasuredPlacement) -> float:
        return compared(before.values, after.values, self.weights, self.asked).gain


def measure(context: Context) -> ObjectiveMeasure:
    """Without guests that another part of the plan places: the next plan must have the same objective."""
    placed = {guest.uuid for guest in (*context.guests, *context.others)}
    placed -= {guest.uuid for guest in context.nova_pinned}
    guests = tuple(guest for guest in context.snapshot.guests if guest.uuid in placed)
    return ObjectiveMeasure.of(replace(context.snapshot, guests=guests), context.request.busy_threshold)


def masks(context: Context, wanted: Iterable[Wanted]) -> dict[int, CpuSet]:
    """By thread id."""
    return {thread.tid: want.cpus for want in wanted for thread in context.threads.get(want.target, ())}
