"""Where the vCPUs of guests may run: the nodes, level-3 caches and cores of affinities, and what lies far from them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pinner.model.cpuset import CpuSet
from pinner.model.guest import Guest
from pinner.model.topology import NodeId, Topology
from pinner.planning.memory_balance import LOCAL, distance
from pinner.planning.numa_bounds import bound_of


@dataclass(frozen=True, slots=True)
class Span:
    """What one affinity covers of the online CPUs."""

    shares: Mapping[NodeId, float]
    """The share of its CPUs on each node."""
    l3: frozenset[int]
    """The level-3 caches, by their index in the topology."""
    cores: frozenset[int]
    """The cores, by their lowest CPU."""
    far: dict[int, float] = field(default_factory=dict)
    """The mean distance to each node's memory, as far as it was computed."""


@dataclass(frozen=True, slots=True)
class GuestSpread:
    """Where the vCPUs of one guest may run, and how far its memory and its devices are from there."""

    nodes: frozenset[NodeId] = frozenset()
    l3: frozenset[int] = frozenset()
    cores: frozenset[int] = frozenset()
    remote_memory: float = 0.0
    """MiB times the distance beyond the local one; the mean over the vCPUs."""
    remote_devices: float = 0.0
    """The number of PCI devices on other nodes; the mean over the vCPUs."""


@dataclass(frozen=True, slots=True)
class Need:
    """The fewest nodes and level-3 caches on which a guest's vCPUs can have a CPU each."""

    nodes: int
    l3: int


@dataclass(frozen=True, slots=True)
class Places:
    """The CPUs of a host by node, cache and core. The span of each distinct affinity is computed once."""

    topology: Topology
    _cpus: Mapping[int, tuple[NodeId, int | None, int]]
    _device_nodes: Mapping[str, int]
    _sizes: tuple[tuple[int, ...], tuple[int, ...]]
    """The number of online CPUs of each node and of each level-3 cache, descending."""
    _spans: dict[int, Span] = field(default_factory=dict)
    """By the bits of the affinity."""

    @classmethod
    def of(cls, topology: Topology) -> "Places":
        """Read a topology."""
        cores = topology.online_cores
        cpus = {cpu.id: (cpu.node, cpu.l3, cores[cpu.id].lowest) for cpu in topology.cpus if cpu.online}
        nodes = Counter(node for node, _, _ in cpus.values())
        caches = Counter(l3 for _, l3, _ in cpus.values() if l3 is not None)
        sizes = tuple(sorted(nodes.values(), reverse=True)), tuple(sorted(caches.values(), reverse=True))
        devices = {each.name: each.node for each in topology.devices if each.kind == "pci" and each.node is not None}
        return cls(topology, cpus, devices, sizes)

    def need(self, guest: Guest) -> Need:
        """The fewest nodes and caches of a guest, by its number of vCPUs and by what binds it to nodes."""
        vcpus = frozenset(guest.plugged)
        bound = bound_of(guest, self.topology)
        here = [group.cpus for group in bound.groups if group.cpus and vcpus.intersection(group.vcpus)] if bound else []
        nodes = max(_fewest(self._sizes[0], len(vcpus)), _hitting(frozenset(self.span(cpus).shares) for cpus in here))
        return Need(nodes, max(_fewest(self._sizes[1], len(vcpus)), nodes))

    def span(self, mask: CpuSet) -> Span:
        """What the affinity covers."""
        if (found := self._spans.get(mask.bits)) is None:
            found = self._spans[mask.bits] = self._span(mask)
        return found

    def spread(self, guest: Guest, masks: Iterable[CpuSet]) -> GuestSpread:
        """Where the vCPUs of the guest may run with these affinities, one for each vCPU."""
        bits = [mask.bits for mask in masks]
        span = self.span(CpuSet(bits[0])) if len(set(bits)) == 1 else self._joint(Counter(bits))
        memory = sum(kib / 1024 * self._far(span, node) for node, kib in guest.memory_per_node.items() if kib)
        devices = self._remote_devices(guest, span.shares) if guest.pci else 0.0
        return GuestSpread(frozenset(span.shares), span.l3, span.cores, memory, devices)

    def _joint(self, masks: Mapping[int, int]) -> Span:
        """What affinities cover together, by their bits, each with its number of vCPUs. Those without an online CPU do
        not count."""
        spans = [(span, vcpus) for bits, vcpus in masks.items() if (span := self.span(CpuSet(bits))).shares]
        count, shares = sum(vcpus for _, vcpus in spans), dict[NodeId, float]()
        for span, vcpus in spans:
            for node, share in span.shares.items():
                shares[node] = shares.get(node, 0.0) + share * vcpus / count
        none = frozenset[int]()
        return Span(shares, none.union(*[span.l3 for span, _ in spans]), none.union(*[span.cores for span, _ in spans]))

    def _span(self, mask: CpuSet) -> Span:
        if len(mask) == 1 and (one := self._cpus.get(mask.lowest)):
            node, l3, core = one
            return Span({node: 1.0}, frozenset(() if l3 is None else (l3,)), frozenset((core,)))
        found = [self._cpus[cpu] for cpu in mask if cpu in self._cpus]
        nodes = Counter(node for node, _, _ in found)
        return Span(
            {node: cpus / len(found) for node, cpus in nodes.items()},
            frozenset(l3 for _, l3, _ in found if l3 is not None),
            frozenset(core for _, _, core in found),
        )

    def _far(self, span: Span, memory: int) -> float:
        """The mean distance of a node's memory beyond the local one; 0 for a span without CPUs."""
        if (found := span.far.get(memory)) is None:
            far = (share * self._distance(node, memory) for node, share in span.shares.items())
            found = span.far[memory] = sum(far)
        return found

    def _remote_devices(self, guest: Guest, here: Mapping[NodeId, float]) -> float:
        if not here:
            return 0.0
        known = (self._device_nodes[address] for address in guest.pci if address in self._device_nodes)
        return sum(1.0 - here.get(node, 0.0) for node in known)

    def _distance(self, node: NodeId, memory: int) -> float:
        """The distance beyond the local one, in units of the local one."""
        return 0.0 if node == memory else max(distance(self.topology.node_by_id, node, memory) / LOCAL - 1, 0.0)


def guests_terms(needs: Mapping[str, Need], spreads: Mapping[str, GuestSpread]) -> dict[str, float]:
    """The terms that follow from where the guests' vCPUs may run; both mappings are by UUID."""
    cores = Counter(core for cores, guests in _distinct(spreads.values()) for core in cores for _ in range(guests))
    return {
        "extra_nodes": sum(max(len(spread.nodes) - needs[uuid].nodes, 0) for uuid, spread in spreads.items()),
        "remote_memory": sum(spread.remote_memory for spread in spreads.values()),
        "shared_cores": sum(1 for guests in cores.values() if guests > 1),
        "extra_l3": sum(max(len(spread.l3) - needs[uuid].l3, 0) for uuid, spread in spreads.items()),
        "remote_devices": sum(spread.remote_devices for spread in spreads.values()),
    }


def _distinct(spreads: Iterable[GuestSpread]) -> Iterator[tuple[frozenset[int], int]]:
    """Each distinct set of cores with the number of its guests, of which more than two make no difference."""
    for cores, guests in Counter(spread.cores for spread in spreads).items():
        yield cores, min(guests, 2)


def _fewest(sizes: tuple[int, ...], vcpus: int) -> int:
    """How many of the largest sizes have room for the vCPUs; all of them where these are too small."""
    room = 0
    for count, size in enumerate(sizes, start=1):
        room += size
        if room >= vcpus:
            return count
    return len(sizes)


def _hitting(allowed: Iterable[frozenset[NodeId]]) -> int:
    """How many nodes are needed so that each of these sets has one of them: at most so many."""
    chosen: set[NodeId] = set()
    for nodes in sorted(allowed, key=lambda each: (len(each), sorted(map(str, each)))):
        if nodes and not nodes & chosen:
            chosen.add(min(nodes, key=str))
    return len(chosen)
