"""Estimates of what moves of guests gain, by a packing of these alone: a whole answer takes many times longer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.plan.objective import COST, TERMS
from pinner.model.plan.plan import CpusByGuest, vcpus_by_guest
from pinner.planning.changes.ordering import valid_order
from pinner.planning.objective.of_plan import SPREAD, MeasuredAnswer, ObjectiveMeasure, weights
from pinner.planning.objective.spread import GuestSpread, guests_terms
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.free_cpus import FreeCpus, GuestAllocation

Estimate = tuple[float, ...]
"""The asked-for terms of each tier that follow from where vCPUs may run."""


@dataclass(frozen=True, slots=True)
class MoveEstimates:
    """The free CPUs beside all guests of an answer."""

    measure: ObjectiveMeasure
    weights: Mapping[str, float]
    """Of the asked-for terms."""
    free: FreeCpus
    places: Mapping[str, GuestAllocation]
    """Of the guests that may have any CPUs of one node."""
    spreads: Mapping[str, GuestSpread]
    current: Mapping[str, CpuSet]

    @classmethod
    def of(
        cls,
        context: Context,
        measure: ObjectiveMeasure,
        asked: frozenset[str],
        found: MeasuredAnswer,
        current: CpusByGuest,
    ) -> "MoveEstimates":
        """Raises NoFit where a vCPU has no CPU of its own, or a guest is unplaced: it would get the CPUs that another
        one leaves."""
        cpus = vcpus_by_guest(found.answer.wanted)
        if found.answer.unplaced:
            raise NoFit(len(found.answer.unplaced), 0, "guests are unplaced")
        # A packing for a move is done by rules alone.
        free = FreeCpus(replace(context, replaced=frozenset(cpus)), found.answer.roles.vcpu)
        guests = [guest for guest in context.guests if guest.uuid in cpus]
        places = {guest.uuid: free.take_pinned(guest, cpus[guest.uuid]) for guest in guests}
        packed = {guest.uuid: places[guest.uuid] for guest in guests if free.is_packed(guest)}
        every = weights(context.snapshot, context.request)
        own = {uuid: union(masks.values()) for uuid, masks in current.items()}
        return cls(measure, {name: every[name] for name in asked & SPREAD}, free, packed, found.measured.spreads, own)

    def now(self) -> Estimate:
        return self._value(self.spreads)

    def after(self, guests: Sequence[Guest]) -> Estimate | None:
        """None where a guest does not fit, cannot be packed, or exchanges CPUs."""
        if any(guest.uuid not in self.places for guest in guests):
            return None
        found = self.free.without(guests, self.places).pack(guests).cpus
        if len(found) < len(guests) or self._exchanging(found):
            return None
        moved = {
            guest.uuid: self.measure.places.spread(guest, [1 << cpu for cpu in found[guest.uuid]]) for guest in guests
        }
        return self._value({**self.spreads, **moved})

    def _exchanging(self, found: Mapping[str, Sequence[int]]) -> bool:
        leaving = {uuid: self.current[uuid] for uuid in found if uuid in self.current}
        getting = {uuid: CpuSet.of(cpus) for uuid, cpus in found.items()}
        waits = {
            uuid: [other for other, cpus in leaving.items() if other != uuid and cpus & getting[uuid]] for uuid in found
        }
        return bool(valid_order(waits)[1])

    def _value(self, spreads: Mapping[str, GuestSpread]) -> Estimate:
        terms = guests_terms(self.measure.needs, spreads)
        tiers: dict[int, float] = dict.fromkeys(range(1, COST), 0.0)
        for kind in TERMS:
            if kind.name in self.weights:
                tiers[kind.tier] += self.weights[kind.name] * terms[kind.name]
        return tuple(tiers.values())
