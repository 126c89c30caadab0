"""Where the vCPUs of guests may run, and what lies far from there."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId, Topology
from pinner.planning.available.memory_balance import LOCAL, distance
from pinner.planning.available.numa_bounds import bound_of


class AffinitySpan(NamedTuple):
    shares: Mapping[NodeId, float]
    """The share of its CPUs on each node."""
    nodes: frozenset[NodeId]
    l3: frozenset[int]
    """By their index in the topology."""
    cores: CpuSet
    """By their lowest CPU."""


class GuestSpread(NamedTuple):
    nodes: frozenset[NodeId] = frozenset()
    l3: frozenset[int] = frozenset()
    cores: CpuSet = CpuSet()
    """By their lowest CPU."""
    remote_memory: float = 0.0
    """MiB times the distance beyond the local one; the mean over the vCPUs."""
    remote_devices: float = 0.0
    """PCI devices on other nodes; the mean over the vCPUs."""


@dataclass(frozen=True, slots=True)
class GuestNeed:
    """The fewest nodes and level-3 caches with a CPU for each vCPU."""

    nodes: int
    l3: int


@dataclass(frozen=True, slots=True)
class Places:
    """The span of each distinct affinity is computed once."""

    topology: Topology
    _device_nodes: Mapping[str, int]
    _sizes: tuple[tuple[int, ...], tuple[int, ...]]
    """Of each node and of each level-3 cache, descending."""
    _nodes: Sequence[tuple[NodeId, int, Sequence[tuple[int, int]]]]
    """Its online CPUs as bits; the index and the same CPUs of its caches."""
    _spans: dict[int, AffinitySpan] = field(default_factory=dict)
    """By the bits of the affinity."""
    _needs: dict[int, GuestNeed] = field(default_factory=dict)
    """Of unbound guests, by vCPUs."""
    _far: dict[int, Mapping[NodeId, float]] = field(default_factory=dict)
    """Beyond the local distance."""

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
        if (found := self._needs.get(vcpus)) is None:
            nodes = _fewest(self._sizes[0], vcpus)
            found = self._needs[vcpus] = GuestNeed(nodes, max(_fewest(self._sizes[1], vcpus), nodes))
        return found

    def span(self, mask: int) -> AffinitySpan:
        if (found := self._spans.get(mask)) is None:
            found = self._spans[mask] = self._span(mask)
        return found

    def spread(self, guest: Guest, masks: Sequence[int]) -> GuestSpread:
        """The bits of an affinity for each vCPU."""
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
        """By their bits, with the number of vCPUs. Those without an online CPU do not count."""
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
        """In units of the local distance; 0 for a span without CPUs."""
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
    """By their lowest CPU."""
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
    """So that each set has one of them: at most so many."""
    chosen: set[NodeId] = set()
    for nodes in sorted(allowed, key=lambda each: (len(each), sorted(map(str, each)))):
        if nodes and not nodes & chosen:
            chosen.add(min(nodes, key=str))
    return len(chosen)
