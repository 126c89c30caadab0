"""Moves of one guest at a time, as long as each lowers the objective of a fresh plan."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Protocol, TypeVar

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import LEAST, compared
from pinner.model.plan.plan import Wanted
from pinner.planning.available.numa import VcpuGroup
from pinner.planning.objective_terms import MeasuredPlacement, ObjectiveMeasure, weights
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.node_choice import Preference
from pinner.planning.strategies.strategy import Strategy, asked_terms


class HasMeasured(Protocol):
    @property
    def measured(self) -> MeasuredPlacement: ...


Homes = Mapping[VcpuGroup, NodeId]
Near = Mapping[NodeId, Preference]

P = TypeVar("P", bound=HasMeasured)
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

    def distance(self, near: Near, homes: Homes) -> tuple[float, float]:
        """The terms of the objective that follow from one guest's nodes and count before those of many."""
        vcpus = sum(len(group.vcpus) for group in homes)
        remote = fsum(len(group.vcpus) / max(vcpus, 1) * near[node].remote_memory for group, node in homes.items())
        return self.weights["extra_nodes"] * len(set(homes.values())), self.weights["remote_memory"] * remote

    def gain(self, before: MeasuredPlacement, after: MeasuredPlacement) -> float:
        return compared(before.values, after.values, self.weights, self.asked).gain


def rise(before: Iterable[float], after: Iterable[float]) -> float:
    """Of the first term that changes."""
    rises = (late - early for early, late in zip(before, after, strict=True))
    return next((rise for rise in rises if abs(rise) >= LEAST), 0.0)


def measure(context: Context) -> ObjectiveMeasure:
    """Without guests that another part of the plan places: the next plan must have the same objective."""
    placed = {guest.uuid for guest in (*context.guests, *context.others)}
    placed -= {guest.uuid for guest in context.nova_pinned}
    guests = tuple(guest for guest in context.snapshot.guests if guest.uuid in placed)
    return ObjectiveMeasure.of(replace(context.snapshot, guests=guests), context.request.busy_threshold)


def masks(context: Context, wanted: Iterable[Wanted]) -> dict[int, CpuSet]:
    return {thread.tid: want.cpus for want in wanted for thread in context.threads.get(want.target, ())}
