"""The objective's terms (docs/objective.md): those of each guest's places, and which threads disturb each other, in
CPUs, if every thread spreads evenly over its online CPUs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from types import MappingProxyType

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Thread
from pinner.model.plan.objective import weighted
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.allocatable_cpus import qemus_own_threads
from pinner.planning.available.numa import bound_of
from pinner.planning.guest_spread import GuestNeed, GuestSpread, Places, guests_terms

SPREAD = frozenset(("extra_nodes", "remote_memory", "shared_cores", "extra_l3", "remote_devices", "paired_vcpus"))
"""Terms that only the strategies ask for which pursue them."""


_MOVABLE = ("", "restricted")

Weighted = tuple[tuple[Thread, float], ...]
"""Threads, each with its weight in CPUs."""


@dataclass(frozen=True)
class Crowd:
    online: CpuSet
    threads: Mapping[str, Weighted]
    """Those that share CPUs, by what they count for: "vcpus", "emulators", "host", and the terms of overload."""

    @classmethod
    def of(cls, snapshot: Snapshot, busy_threshold: float) -> "Crowd":
        guests, busy, measured = snapshot.guests, tuple(_busy(snapshot, busy_threshold)), _demands(snapshot)
        # QEMU's own threads are listed only to find those that have load.
        of_guests = guests if measured else ()
        vcpus = [vcpu.thread for guest in guests for vcpu in guest.vcpus if vcpu.thread]
        qemu = (thread for guest in of_guests for thread in qemus_own_threads(guest))
        threads = {
            "vcpus": tuple([(each, 1.0) for each in vcpus]),
            "emulators": tuple([each for guest in guests for each in _beside(guest)]),
            "host": tuple((thread, thread.load / 100) for thread in busy),
            "host_overload": tuple((thread, demand(thread)) for thread in busy),
            "qemu_overload": tuple((each, measured[each.tid]) for each in qemu if each.tid in measured),
            "vcpu_overload": tuple((each, measured[each.tid]) for each in vcpus if each.tid in measured),
        }
        return cls(snapshot.topology.online, threads)

    @cached_property
    def counts(self) -> Mapping[int, Sequence[tuple[Thread, str, float]]]:
        """What each thread counts for, with its weight, by thread id."""
        counts: dict[int, list[tuple[Thread, str, float]]] = {}
        for name, threads in self.threads.items():
            for thread, weight in threads:
                counts.setdefault(thread.tid, []).append((thread, name, weight))
        return counts

    def by_mask(self, planned: Mapping[int, CpuSet]) -> dict[str, dict[int, float]]:
        """Weights by the bits of an affinity. ``planned`` by thread id; other threads stay."""
        return {name: _by_mask(threads, planned) for name, threads in self.threads.items()}

    def terms(self, by_mask: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
        densities = {name: self._density(weights) for name, weights in by_mask.items()}
        on_vcpus, beside, host = (densities.pop(name) for name in ("vcpus", "emulators", "host"))
        return {
            **_overloads(densities),
            "vcpu_vs_host": _clash(on_vcpus, host),
            "vcpu_vs_emulator": _clash(on_vcpus, beside),
            "emulator_vs_host": _clash(beside, host),
            "overcommit": fsum(count - 1.0 for count in on_vcpus.values() if count > 1.0),
        }

    def _density(self, by_mask: Mapping[int, float]) -> dict[int, float]:
        density: dict[int, float] = {}
        online = self.online.bits
        for mask, weight in by_mask.items():
            possible = mask & online
            count = possible.bit_count()
            # Most vCPUs have one CPU each, and need no list of CPUs.
            for cpu in CpuSet(possible) if count != 1 else (possible.bit_length() - 1,):
                density[cpu] = density.get(cpu, 0.0) + weight / count
        return density


def _by_mask(threads: Weighted, planned: Mapping[int, CpuSet]) -> dict[int, float]:
    weights: dict[int, float] = {}
    for thread, weight in threads:
        mask = planned.get(thread.tid, thread.affinity).bits
        weights[mask] = weights.get(mask, 0.0) + weight
    return weights


def demand(thread: Thread) -> float:
    """CPUs: load x (1 + delay / run), up to one. Both times count since the thread's start."""
    load = thread.load / 100
    if not thread.run_ns or not thread.delay_ns:
        return load
    return max(load, min(1.0, load * (1 + thread.delay_ns / thread.run_ns)))


def _demands(snapshot: Snapshot) -> dict[int, float]:
    return {
        thread.tid: demand(thread)
        for process in snapshot.processes
        if process.load and process.immovable_reason == "guest"
        for thread in process.threads
        if thread.load
    }


def _beside(guest: Guest) -> list[tuple[Thread, float]]:
    emulators = guest.emulator.threads
    weighted = [(thread, 1.0 / len(emulators)) for thread in emulators]
    weighted += [(iothread.thread, 1.0) for iothread in guest.iothreads if iothread.thread]
    return weighted + [(vhost, 1.0) for vhost in guest.vhost_threads]


def _busy(snapshot: Snapshot, threshold: float) -> Iterator[Thread]:
    for process in snapshot.processes:
        if process.load > threshold and process.immovable_reason in _MOVABLE:
            yield from (thread for thread in process.threads if thread.immovable_reason in _MOVABLE)


def _overloads(demands: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    overloads, totals = dict.fromkeys(demands, 0.0), dict[int, float]()
    for load in demands.values():
        for cpu, part in load.items():
            totals[cpu] = totals.get(cpu, 0.0) + part
    for cpu, total in totals.items():
        if total > 1.0:
            for name, load in demands.items():
                overloads[name] += (total - 1.0) * load.get(cpu, 0.0) / total
    return overloads


def _clash(disturbed: Mapping[int, float], disturbing: Mapping[int, float]) -> float:
    return fsum(min(disturbed[cpu], 1.0) * weight for cpu, weight in disturbing.items() if cpu in disturbed)


def _wanting(guest: Guest, measured: Mapping[int, float]) -> tuple[list[Thread], list[float]]:
    """Those of a guest without load may each want a whole CPU at any moment."""
    vcpus = [each.thread for each in guest.vcpus if each.thread]
    if not any(each.tid in measured for each in vcpus):
        return vcpus, [1.0] * len(vcpus)
    return vcpus, [measured.get(each.tid, 0.0) for each in vcpus]


def weights(snapshot: Snapshot, request: Request) -> dict[str, float]:
    """A request whose guests have both threads of their cores does not count these pairs."""
    pairs = {"paired_vcpus": 0.0} if request.smt == "require" else {}
    return weighted(snapshot.weights, request.weights, pairs)


@dataclass(frozen=True)
class MeasuredPlacement:
    measure: "ObjectiveMeasure"
    planned: Mapping[int, CpuSet]
    """By thread id; other threads stay."""
    spreads: Mapping[str, GuestSpread]
    by_mask: Mapping[str, Mapping[int, float]]

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Terms of tiers 2 to 7."""
        return guests_terms(self.measure.needs, self.spreads) | self.measure.crowd.terms(self.by_mask)

    def moved(self, uuid: str, masks: Mapping[int, CpuSet]) -> "MeasuredPlacement":
        """With other CPUs for threads of one guest, by thread id."""
        guest, vcpus, wants = self.measure.guests[uuid]
        planned, by_mask = {**self.planned, **masks}, {name: dict(each) for name, each in self.by_mask.items()}
        own = [planned.get(each.tid, each.affinity).bits for each in vcpus]
        spread = self.measure.places.spread(guest, own, wants)
        for tid, after in masks.items():
            for thread, name, weight in self.measure.crowd.counts.get(tid, ()):
                total, before = by_mask[name], self.planned.get(tid, thread.affinity)
                total[before.bits] -= weight
                total[after.bits] = total.get(after.bits, 0.0) + weight
        return replace(self, planned=planned, spreads={**self.spreads, uuid: spread}, by_mask=by_mask)


@dataclass(frozen=True, slots=True)
class ObjectiveMeasure:
    guests: Mapping[str, tuple[Guest, Sequence[Thread], Sequence[float]]]
    """With the threads of vCPUs and the CPUs that each wants, by UUID."""
    places: Places
    needs: Mapping[str, GuestNeed]
    crowd: Crowd

    @classmethod
    def of(cls, snapshot: Snapshot, busy_threshold: float) -> "ObjectiveMeasure":
        places = Places.of(snapshot.topology)
        crowd = Crowd.of(snapshot, busy_threshold)
        measured = {thread.tid: load for thread, load in crowd.threads["vcpu_overload"]}
        guests = {guest.uuid: (guest, *_wanting(guest, measured)) for guest in snapshot.guests}
        needs = {uuid: places.need(guest, wants) for uuid, (guest, _, wants) in guests.items()}
        return cls(guests, places, needs, crowd)

    def measured(self, planned: Mapping[int, CpuSet]) -> MeasuredPlacement:
        """``planned`` by thread id; other threads stay."""
        spreads = {
            uuid: self.places.spread(guest, [planned.get(each.tid, each.affinity).bits for each in vcpus], wants)
            for uuid, (guest, vcpus, wants) in self.guests.items()
        }
        return MeasuredPlacement(self, planned, spreads, self.crowd.by_mask(planned))

    def values(self, planned: Mapping[int, CpuSet]) -> dict[str, float]:
        return dict(self.measured(planned).values)

    def keeping(
        self,
        planned: Mapping[int, CpuSet],
        kept: Callable[[CpuSet], CpuSet],
        before: Mapping[int, CpuSet] = MappingProxyType({}),
    ) -> dict[int, CpuSet]:
        """``planned``, but each vCPU in it keeps those of its CPUs, of ``before`` or now, that are ``kept`` and in its
        guest's bound, if it has one there. Of several clusters, it keeps the planned one."""
        masks, clusters = dict(planned), self.places.topology.clusters
        for guest, *_ in self.guests.values():
            bound = bound_of(guest, self.places.topology)
            for vcpu in guest.vcpus:
                if vcpu.thread and (tid := vcpu.thread.tid) in planned:
                    mask = kept(before.get(tid, vcpu.thread.affinity))
                    mask = mask if bound is None else bound.of(guest.vcpu_targets[vcpu.id]).within(mask)
                    if not any(mask <= each for each in clusters):
                        mask = mask & union(each for each in clusters if each & masks[tid]) or mask
                    masks[tid] = mask or masks[tid]
        return masks
