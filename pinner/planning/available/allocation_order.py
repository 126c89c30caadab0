"""The order in which automatic sets take the CPUs of a node."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa import allowed
from pinner.planning.available.operator_pins import qemus_own_pins, released, vcpu_pins


class Confined(NamedTuple):
    """vCPUs that cgroups, a definition or an operator's pins confine."""

    cpus: CpuSet
    cores: CpuSet
    """Whole."""
    vcpus: int
    """Also those that are confined to a part of these CPUs."""
    most: int
    """vCPUs of one guest."""

    @property
    def steps(self) -> tuple[int, ...]:
        """CPUs that automatic sets leave, as long as they can: one for each vCPU, half of all, one."""
        size = len(self.cpus)
        return min(self.vcpus, size), (size + 1) // 2, min(1, size), 0


@dataclass(frozen=True, slots=True)
class AllocationOrder:
    lcores: CpuSet = CpuSet()
    """Whole cores of Open vSwitch's threads that do not poll: the host's, before all others."""
    confined: tuple[Confined, ...] = ()
    """The widest first: automatic sets take these CPUs last."""
    classes: tuple[CpuSet, ...] = ()
    """Of cores, slowest first."""
    settled: CpuSet = CpuSet()
    """CPUs of guests that run on slower cores only."""
    qemus_own: CpuSet = CpuSet()
    """Whole cores of QEMU's own threads that operators pinned: housekeeping takes these CPUs last."""
    beside_pinned: CpuSet = CpuSet()
    """Siblings of CPUs of guests that Nova pinned, outside its dedicated set: automatic sets take them last."""

    @classmethod
    def of(cls, snapshot: Snapshot, request: Request) -> "AllocationOrder":
        cores, online, nova = snapshot.topology.online_cores, snapshot.topology.online, snapshot.nova_owns()
        lcores = snapshot.ovs.masks.lcore if snapshot.ovs else CpuSet()
        return cls(
            lcores=union(cores[cpu] for cpu in lcores & online),
            confined=_confined(snapshot, request),
            classes=snapshot.topology.core_classes[::-1],
            settled=_settled(snapshot),
            qemus_own=union(cores[cpu] for cpu in union(qemus_own_pins(snapshot, request).values())),
            beside_pinned=union(cores[cpu] for guest in nova.guests for cpu in guest.cpus & online) - nova.dedicated,
        )

    @property
    def is_by_id(self) -> bool:
        """The lowest CPUs first."""
        others = self.lcores or self.confined or self.qemus_own or self.beside_pinned
        return not others and len(self.classes) < 2

    def needed(self, cpus: CpuSet) -> int:
        """Of these, for the confinement with most vCPUs."""
        shares = ((len(each.cpus & cpus) / len(each.cpus), each.vcpus) for each in self.confined)
        return max((ceil(round(share * vcpus, 6)) for share, vcpus in shares), default=0)

    def can_spare(self, core: CpuSet, cpus: CpuSet) -> bool:
        """Of these CPUs for vCPUs: each confined guest keeps one, and one for each vCPU if it has these now."""
        before = [(each.most, each.cpus & cpus) for each in self.confined]
        after = [(most, len(here), len(here - core)) for most, here in before if here]
        return all(left and not left < most <= size for most, size, left in after)

    def in_turn(
        self,
        not_for_vcpus: tuple[CpuSet, ...],
        for_vcpus: CpuSet,
        needed: int,
        cores_within: Callable[[CpuSet], Iterable[CpuSet]],
    ) -> Iterator[CpuSet]:
        """Those that vCPUs may not use come first. Of a class with at most ``needed`` CPUs, those of its guests come
        last."""
        slower = [cpus & for_vcpus for cpus in self.classes[:-1]]
        kept = union(cpus & self.settled for cpus in slower if len(cpus) <= needed)
        others = for_vcpus - kept
        for part in not_for_vcpus:
            yield from self._slowest_first(part & self.lcores)
            yield from self._slowest_first(part - self.lcores)
        yield from self._confined_last(others & self.lcores)
        yield from self._sparing([*self._confined_last(others - self.lcores), *self._slowest_first(kept)], cores_within)

    def _sparing(self, parts: list[CpuSet], cores_within: Callable[[CpuSet], Iterable[CpuSet]]) -> Iterator[CpuSet]:
        """First what leaves confined vCPUs the CPUs of the first step, then those of the next one."""
        every = union(parts)
        confined = [each._replace(cpus=each.cpus & every) for each in self.confined if each.cpus & every]
        rest = [each.cpus for each in confined]
        for keep in zip(*(each.steps for each in confined), strict=True):
            for number, part in enumerate(parts):
                spare = CpuSet()
                for core in cores_within(part):
                    after = [cpus - core for cpus in rest]
                    if all(
                        cpus == left or len(left) >= least for cpus, left, least in zip(rest, after, keep, strict=True)
                    ):
                        rest, spare = after, spare | core
                yield spare
                parts[number] = part - spare
        yield from parts

    def _confined_last(self, cpus: CpuSet) -> Iterator[CpuSet]:
        parts = [cpus]
        for _, cores, _, _ in self.confined:
            parts = [part for part in (*(each - cores for each in parts), *(each & cores for each in parts)) if part]
        for part in parts:
            yield from self._slowest_first(part)

    def _slowest_first(self, cpus: CpuSet) -> Iterator[CpuSet]:
        apart = cpus - self.beside_pinned
        slower = [apart & each for each in self.classes[:-1]]
        yield from slower
        yield apart - union(slower)
        yield cpus & self.beside_pinned


ANY_ORDER = AllocationOrder()


def _confined(snapshot: Snapshot, request: Request) -> tuple[Confined, ...]:
    cores, online = snapshot.topology.online_cores, snapshot.topology.online
    guests: dict[CpuSet, Counter[str]] = {}
    for guest in released(snapshot, request).guests:
        cpus = allowed(guest, guest.restriction or online) & online
        if cpus and cpus != online and not guest.dedicated:
            guests.setdefault(cpus, Counter())[guest.uuid] += len(guest.plugged)
    for guest, _, cpus in vcpu_pins(snapshot, request):
        guests.setdefault(cpus, Counter())[guest.uuid] += 1
    confined = (
        Confined(
            cpus,
            union(cores[cpu] for cpu in cpus),
            sum(counts.total() for other, counts in guests.items() if other <= cpus),
            max(here.values()),
        )
        for cpus, here in guests.items()
    )
    return tuple(sorted(confined, key=lambda each: (-len(each.cores), list(each.cores), list(each.cpus))))


def _settled(snapshot: Snapshot) -> CpuSet:
    """A guest with more vCPUs than CPUs does not count: it gets other cores."""
    if not (slower := snapshot.topology.core_classes[1:]):
        return CpuSet()
    masks = ((guest, union(guest.vcpu_affinities.values()) & snapshot.topology.online) for guest in snapshot.guests)
    return union(
        mask for guest, mask in masks if len(guest.plugged) <= len(mask) and any(mask <= each for each in slower)
    )
