"""The objective's terms (docs/objective.md): where vCPUs may run, what lies far from there, and which threads disturb
each other, in CPUs, if every thread spreads evenly over its online CPUs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from types import MappingProxyType
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Thread
from pinner.model.machine.topology import NodeId, Topology
from pinner.model.plan.objective import weighted
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.allocatable_cpus import qemus_own_threads
from pinner.planning.available.numa import LOCAL, bound_of, distance

SPREAD = frozenset(("extra_nodes", "remote_memory", "shared_cores", "extra_l3", "remote_devices"))
"""Terms that only the strategies ask for which pursue them."""


class AffinitySpan(NamedTuple):
    shares: Mapping[NodeId, float]
    """Of its CPUs on each node."""
    nodes: frozenset[NodeId]
    l3: frozenset[int]
    """Indexes in the topology."""
    cores: CpuSet
    """By their lowest CPU."""


class GuestSpread(NamedTuple):
    nodes: frozenset[NodeId] = frozenset()
    l3: frozenset[int] = frozenset()
    cores: CpuSet = CpuSet()
    remote_memory: float = 0.0
    """MiB times the distance beyond the local one; mean over the vCPUs."""
    remote_devices: float = 0.0
    """PCI devices on other nodes; mean over the vCPUs."""


@dataclass(frozen=True, slots=True)
class GuestNeed:
    nodes: int
    l3: int


@dataclass(frozen=True, slots=True)
class Places:
    topology: Topology
    _device_nodes: Mapping[str, int]
    _sizes: tuple[tuple[int, ...], tuple[int, ...]]
    _nodes: Sequence[tuple[NodeId, int, Sequence[tuple[int, int]]]]
    """Its online CPUs as bits; its caches' indexes and CPUs."""
    _spans: dict[int, AffinitySpan] = field(default_factory=dict)
    _needs: dict[int, GuestNeed] = field(default_factory=dict)
    _far: dict[int, Mapping[NodeId, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology) -> "Places":
        sets = topology.online_by_node.values(), topology.online_by_l3.values()
        nodes, caches = (tuple(sorted(map(len, each), reverse=True)) for each in sets)
        devices = {each.name: each.node for each in topology.devices if each.kind == "pci" and each.node is not None}
        by_cache = [(number, cpus.bits) for number, cpus in topology.online_by_l3.items()]
        near = [
            (node, here.bits, [(number, cpus) for number, cpus in by_cache if cpus & here.bits])
            for node, here in topology.online_by_node.items()
        ]
        return cls(topology, devices, (nodes, caches), near)

    def need(self, guest: Guest) -> GuestNeed:
        vcpus, bound = guest.plugged, bound_of(guest, self.topology)
        if bound is None:
            return self._unbound(len(vcpus))
        here = [group.cpus for group in bound.groups if group.cpus and not set(vcpus).isdisjoint(group.vcpus)]
        nodes = max(_fewest(self._sizes[0], len(vcpus)), _hitting(self.span(cpus.bits).nodes for cpus in here))
        return GuestNeed(nodes, max(_fewest(self._sizes[1], len(vcpus)), nodes))

    def _unbound(self, vcpus: int) -> GuestNeed:
        if (need := self._needs.get(vcpus)) is None:
            nodes = _fewest(self._sizes[0], vcpus)
            need = self._needs[vcpus] = GuestNeed(nodes, max(_fewest(self._sizes[1], vcpus), nodes))
        return need

    def span(self, mask: int) -> AffinitySpan:
        if (span := self._spans.get(mask)) is None:
            span = self._spans[mask] = self._span(mask)
        return span

    def spread(self, guest: Guest, masks: Sequence[int]) -> GuestSpread:
        distinct = set(masks)
        # vCPUs with the same CPUs, or with one CPU each, cover what these CPUs cover together.
        if len(distinct) == 1:
            span = self.span(masks[0])
        elif len(distinct) == len(masks) == sum(map(int.bit_count, masks)) and 0 not in distinct:
            span = self.span(sum(masks))
        else:
            span = self._joint(Counter(masks))
        memory = fsum([kib / 1024 * self._distance(span, node) for node, kib in guest.memory_per_node.items() if kib])
        devices = self._remote_devices(guest, span.shares) if guest.pci else 0.0
        return GuestSpread(span.nodes, span.l3, span.cores, memory, devices)

    def _joint(self, masks: Mapping[int, int]) -> AffinitySpan:
        """``masks``: number of vCPUs by bits. Those without an online CPU do not count."""
        spans = [(span, vcpus) for bits, vcpus in masks.items() if (span := self.span(bits)).shares]
        count, shares = sum(vcpus for _, vcpus in spans), dict[NodeId, float]()
        for span, vcpus in spans:
            for node, share in span.shares.items():
                shares[node] = shares.get(node, 0.0) + share * vcpus / count
        l3 = frozenset[int]().union(*[span.l3 for span, _ in spans])
        return AffinitySpan(shares, frozenset(shares), l3, union(s.cores for s, _ in spans))

    def _span(self, mask: int) -> AffinitySpan:
        here = mask & self.topology.online.bits
        shares: dict[NodeId, float] = {}
        l3: list[int] = []
        for node, cpus, caches in self._nodes:
            if on_node := here & cpus:
                shares[node] = on_node.bit_count() / here.bit_count()
                l3 += [number for number, bits in caches if on_node & bits]
        cores = union([shape.touched(CpuSet(here)) for shape in self.topology.core_shapes])
        return AffinitySpan(shares, frozenset(shares), frozenset(l3), cores)

    def _distance(self, span: AffinitySpan, memory: int) -> float:
        if (far := self._far.get(memory)) is None:
            far = self._far[memory] = {
                node: 0.0 if node == memory else max(distance(self.topology.node_by_id, node, memory) / LOCAL - 1, 0.0)
                for node in self.topology.online_by_node
            }
        return fsum(share * far[node] for node, share in span.shares.items())

    def _remote_devices(self, guest: Guest, here: Mapping[NodeId, float]) -> float:
        if not here:
            return 0.0
        known = (self._device_nodes[address] for address in guest.pci if address in self._device_nodes)
        return fsum(1.0 - here.get(node, 0.0) for node in known)


def guests_terms(needs: Mapping[str, GuestNeed], spreads: Mapping[str, GuestSpread]) -> dict[str, float]:
    return {
        "extra_nodes": sum(max(len(spread.nodes) - needs[uuid].nodes, 0) for uuid, spread in spreads.items()),
        "remote_memory": fsum(spread.remote_memory for spread in spreads.values()),
        "shared_cores": len(shared_cores(spreads.values())),
        "extra_l3": sum(max(len(spread.l3) - needs[uuid].l3, 0) for uuid, spread in spreads.items()),
        "remote_devices": fsum(spread.remote_devices for spread in spreads.values()),
    }


def shared_cores(spreads: Iterable[GuestSpread]) -> CpuSet:
    used = shared = 0
    for spread in spreads:
        shared |= used & spread.cores.bits
        used |= spread.cores.bits
    return CpuSet(shared)


def _fewest(sizes: tuple[int, ...], vcpus: int) -> int:
    room = 0
    for count, size in enumerate(sizes, start=1):
        room += size
        if room >= vcpus:
            return count
    return len(sizes)


def _hitting(allowed: Iterable[frozenset[NodeId]]) -> int:
    """The greedy number of nodes of which each set has one; at least the fewest."""
    chosen: set[NodeId] = set()
    for nodes in sorted(allowed, key=lambda each: (len(each), sorted(map(str, each)))):
        if nodes and not nodes & chosen:
            chosen.add(min(nodes, key=str))
    return len(chosen)


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


def weights(snapshot: Snapshot, request: Request) -> dict[str, float]:
    return weighted(snapshot.weights, request.weights)


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
        guest, vcpus = self.measure.guests[uuid]
        planned, by_mask = {**self.planned, **masks}, {name: dict(each) for name, each in self.by_mask.items()}
        spread = self.measure.places.spread(guest, [planned.get(each.tid, each.affinity).bits for each in vcpus])
        for tid, after in masks.items():
            for thread, name, weight in self.measure.crowd.counts.get(tid, ()):
                total, before = by_mask[name], self.planned.get(tid, thread.affinity)
                total[before.bits] -= weight
                total[after.bits] = total.get(after.bits, 0.0) + weight
        return replace(self, planned=planned, spreads={**self.spreads, uuid: spread}, by_mask=by_mask)


@dataclass(frozen=True, slots=True)
class ObjectiveMeasure:
    guests: Mapping[str, tuple[Guest, Sequence[Thread]]]
    """With the threads of vCPUs, by UUID."""
    places: Places
    needs: Mapping[str, GuestNeed]
    crowd: Crowd

    @classmethod
    def of(cls, snapshot: Snapshot, busy_threshold: float) -> "ObjectiveMeasure":
        places = Places.of(snapshot.topology)
        needs = {guest.uuid: places.need(guest) for guest in snapshot.guests}
        guests = {
            guest.uuid: (guest, [each.thread for each in guest.vcpus if each.thread]) for guest in snapshot.guests
        }
        return cls(guests, places, needs, Crowd.of(snapshot, busy_threshold))

    def measured(self, planned: Mapping[int, CpuSet]) -> MeasuredPlacement:
        """``planned`` by thread id; other threads stay."""
        spreads = {
            uuid: self.places.spread(guest, [planned.get(each.tid, each.affinity).bits for each in vcpus])
            for uuid, (guest, vcpus) in self.guests.items()
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
        for guest, _ in self.guests.values():
            bound = bound_of(guest, self.places.topology)
            for vcpu in guest.vcpus:
                if vcpu.thread and (tid := vcpu.thread.tid) in planned:
                    mask = kept(before.get(tid, vcpu.thread.affinity))
                    mask = mask if bound is None else bound.of(guest.vcpu_targets[vcpu.id]).within(mask)
                    if not any(mask <= each for each in clusters):
                        mask = mask & union(each for each in clusters if each & masks[tid]) or mask
                    masks[tid] = mask or masks[tid]
        return masks
