"""The terms of the objective for one host, with any affinities of its threads. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.processes.process import Thread
from pinner.model.snapshot import Snapshot
from pinner.planning.objective.contention import Crowd
from pinner.planning.objective.spread import GuestNeed, GuestSpread, Places, guests_terms


@dataclass(frozen=True, slots=True)
class MeasuredPlacement:
    """One placement of a host's threads."""

    spreads: Mapping[str, GuestSpread]
    """Where the vCPUs of each guest may run, by UUID."""
    values: Mapping[str, float]
    """The value of each term of tiers 2 to 7."""


@dataclass(frozen=True, slots=True)
class ObjectiveMeasure:
    """A host, read once, so that several placements of its threads can be measured."""

    guests: Sequence[tuple[Guest, Sequence[Thread]]]
    """The guests, each with the threads of its vCPUs."""
    places: Places
    needs: Mapping[str, GuestNeed]
    """By the guests' UUIDs."""
    crowd: Crowd

    @classmethod
    def of(cls, snapshot: Snapshot, busy_threshold: float) -> "ObjectiveMeasure":
        """Read a snapshot; ``busy_threshold`` is in per cent of one CPU."""
        places = Places.of(snapshot.topology)
        needs = {guest.uuid: places.need(guest) for guest in snapshot.guests}
        guests = [(guest, [vcpu.thread for vcpu in guest.vcpus if vcpu.thread]) for guest in snapshot.guests]
        return cls(guests, places, needs, Crowd.of(snapshot, busy_threshold))

    def measured(self, planned: Mapping[int, CpuSet]) -> MeasuredPlacement:
        """The placement with the affinities of ``planned`` (thread id to CPUs) and current ones for other threads.

        The time grows with the number of threads, and with the CPUs of each distinct affinity.
        """
        spreads: dict[str, GuestSpread] = {}
        every: list[int] = []
        for guest, vcpus in self.guests:
            masks = [planned.get(each.tid, each.affinity).bits for each in vcpus]
            spreads[guest.uuid] = self.places.spread(guest, masks)
            every += masks
        return MeasuredPlacement(spreads, guests_terms(self.needs, spreads) | self.crowd.terms(planned, every))

    def values(self, planned: Mapping[int, CpuSet]) -> dict[str, float]:
        """The value of each term of tiers 2 to 7 of this placement."""
        return dict(self.measured(planned).values)
