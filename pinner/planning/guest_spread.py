"""Where the vCPUs of each guest may run, what lies far from there, and which cores they share: the terms of the
objective (docs/objective.md) that follow from one guest's places."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId, Topology
from pinner.planning.available.numa import LOCAL, bound_of, distance


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
    paired: float = 0.0
    """vCPUs on cores where the guest has another one already."""


@dataclass(frozen=True, slots=True)
class GuestNeed:
    nodes: int
    l3: int
    paired: float
    """vCPUs that share cores even if they float over all CPUs that they may have."""


@dataclass(frozen=True, slots=True)
class Places:
    topology: Topology
    _device_nodes: Mapping[str, int]
    _sizes: tuple[tuple[int, ...], tuple[int, ...]]
    _nodes: Sequence[tuple[NodeId, int, Sequence[tuple[int, int]]]]
    """Its online CPUs as bits; its caches' indexes and CPUs."""
    _cores: tuple[int, ...]
    """Those of several threads, as bits."""
    _spans: dict[int, AffinitySpan] = field(default_factory=dict)
    _needs: dict[int, tuple[int, int]] = field(default_factory=dict)
    _far: dict[int, Mapping[NodeId, float]] = field(default_factory=dict)
    _on_cores: dict[int, Mapping[int, float]] = field(default_factory=dict)
    _by_share: dict[int, Mapping[tuple[float, int], int]] = field(default_factory=dict)

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
        cores = dict.fromkeys(core.bits for core in topology.online_cores.values() if len(core) > 1)
        return cls(topology, devices, (nodes, caches), near, tuple(cores))

    def need(self, guest: Guest, wants: Sequence[float]) -> GuestNeed:
        """``wants``: CPUs that each vCPU with a thread wants, at most one."""
        vcpus, bound, everywhere = guest.plugged, bound_of(guest, self.topology), self.topology.online
        if bound is None:
            return GuestNeed(*self._unbound(len(vcpus)), self._paired([everywhere.bits] * len(wants), wants))
        own = [bound.of(guest.vcpu_targets[each.id]).within(everywhere).bits for each in guest.vcpus if each.thread]
        here = [group.cpus for group in bound.groups if group.cpus and not set(vcpus).isdisjoint(group.vcpus)]
        nodes = max(_fewest(self._sizes[0], len(vcpus)), _hitting(self.span(cpus.bits).nodes for cpus in here))
        return GuestNeed(nodes, max(_fewest(self._sizes[1], len(vcpus)), nodes), self._paired(own, wants))

    def _unbound(self, vcpus: int) -> tuple[int, int]:
        if (need := self._needs.get(vcpus)) is None:
            nodes = _fewest(self._sizes[0], vcpus)
            need = self._needs[vcpus] = nodes, max(_fewest(self._sizes[1], vcpus), nodes)
        return need

    def span(self, mask: int) -> AffinitySpan:
        if (span := self._spans.get(mask)) is None:
            span = self._spans[mask] = self._span(mask)
        return span

    def spread(self, guest: Guest, masks: Sequence[int], wants: Sequence[float]) -> GuestSpread:
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
        return GuestSpread(span.nodes, span.l3, span.cores, memory, devices, self._paired(masks, wants))

    def _paired(self, masks: Sequence[int], wants: Sequence[float]) -> float:
        """What vCPUs want of each core beyond its first thread, without what is beyond its last (overcommit)."""
        by_mask, by_core = dict[int, float](), dict[int, float]()
        for mask, want in zip(masks, wants, strict=True):
            by_mask[mask] = by_mask.get(mask, 0.0) + want
        if not self._cores or fsum(by_mask.values()) <= 1.0:
            return 0.0
        if len(by_mask) == 1:
            ((mask, want),) = by_mask.items()
            shares = self._equal_shares(mask).items()
            return fsum(
                count * (min(want * share, threads) - 1.0) for (share, threads), count in shares if want * share > 1.0
            )
        for mask, want in by_mask.items():
            for core, share in self._shares(mask).items():
                by_core[core] = by_core.get(core, 0.0) + want * share
        return fsum(min(want, core.bit_count()) - 1.0 for core, want in by_core.items() if want > 1.0)

    def _equal_shares(self, mask: int) -> Mapping[tuple[float, int], int]:
        """The number of cores by share and threads: most guests float over many cores with equal shares."""
        if (equal := self._by_share.get(mask)) is None:
            equal = self._by_share[mask] = Counter(
                (share, core.bit_count()) for core, share in self._shares(mask).items()
            )
        return equal

    def _shares(self, mask: int) -> Mapping[int, float]:
        """Of its CPUs on each core of several threads, by the core's bits."""
        if (shares := self._on_cores.get(mask)) is None:
            here = mask & self.topology.online.bits
            shares = self._on_cores[mask] = {
                core: (here & core).bit_count() / here.bit_count() for core in self._cores if here & core
            }
        return shares

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
        "paired_vcpus": fsum(max(spread.paired - needs[uuid].paired, 0.0) for uuid, spread in spreads.items()),
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
