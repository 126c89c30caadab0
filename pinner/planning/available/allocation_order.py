"""The order in which automatic sets take the CPUs of a node."""

from collections.abc import Iterator
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet, union
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.operator_pins import confined


@dataclass(frozen=True, slots=True)
class AllocationOrder:
    lcores: CpuSet = CpuSet()
    """Whole cores of Open vSwitch's threads that do not poll: the host's, before all others."""
    confined: tuple[CpuSet, ...] = ()
    """Whole cores to which a definition or an operator restricts vCPUs, the widest first: automatic sets take them
    last."""
    classes: tuple[CpuSet, ...] = ()
    """Of cores, slowest first."""
    settled: CpuSet = CpuSet()
    """CPUs of guests that run on slower cores only."""

    @classmethod
    def of(cls, snapshot: Snapshot, request: Request) -> "AllocationOrder":
        cores, online = snapshot.topology.online_cores, snapshot.topology.online
        lcores = snapshot.ovs.masks.lcore if snapshot.ovs else CpuSet()
        return cls(
            lcores=union(cores[cpu] for cpu in lcores & online),
            confined=confined(snapshot, request),
            classes=snapshot.topology.core_classes[::-1],
            settled=_settled(snapshot),
        )

    def in_turn(self, not_for_vcpus: tuple[CpuSet, ...], for_vcpus: CpuSet, needed: int) -> Iterator[CpuSet]:
        """Those that vCPUs may not use come first. Of a class with at most ``needed`` CPUs, those of its guests come
        last."""
        parts = [for_vcpus]
        for cpus in self.confined:
            parts = [part for part in (*(each - cpus for each in parts), *(each & cpus for each in parts)) if part]
        for part in (*not_for_vcpus, *parts):
            yield from self._slowest_first(part & self.lcores, needed)
            yield from self._slowest_first(part - self.lcores, needed)

    def _slowest_first(self, part: CpuSet, needed: int) -> Iterator[CpuSet]:
        slower = [part & cpus for cpus in self.classes[:-1]]
        kept = union(each & self.settled for each in slower if len(each) <= needed)
        yield from (each - kept for each in slower)
        yield part - union(slower)
        yield kept


ANY_ORDER = AllocationOrder()


def _settled(snapshot: Snapshot) -> CpuSet:
    """A guest with more vCPUs than CPUs does not count: it gets other cores."""
    if not (slower := snapshot.topology.core_classes[1:]):
        return CpuSet()
    masks = ((guest, union(guest.vcpu_affinities.values()) & snapshot.topology.online) for guest in snapshot.guests)
    return union(
        mask for guest, mask in masks if len(guest.plugged) <= len(mask) and any(mask <= each for each in slower)
    )
