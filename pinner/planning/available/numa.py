"""A guest and the host's NUMA nodes: the CPUs to which its memory, Nova's pins of its cells, its definition and cgroups
bind its threads (docs/strategies.md), and the KiB that it can still get on each node. A node without CPUs binds no
thread.

Resident memory is where it is; the rest is booked on the node of the guest's vCPUs, because Linux allocates a page on
the node of the CPU that touches it first (admin-guide/mm/numa_memory_policy.rst).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, fsum
from types import MappingProxyType

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import ROOT, CpuLimit
from pinner.model.machine.topology import Node, Topology
from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class VcpuGroup:
    """vCPUs of a guest that are bound to the same CPUs."""

    vcpus: tuple[int, ...]
    cpus: CpuSet | None = None
    """Online or not; None: any."""
    why: str = ""
    crowded: bool = False
    """Its clusters have fewer CPUs than vCPUs, which share them."""

    def within(self, cpus: CpuSet) -> CpuSet:
        return cpus if self.cpus is None else cpus & self.cpus

    def of_cores(self, cores: CpuSet, clusters: Iterable[CpuSet]) -> "VcpuGroup":
        """``clusters``: those of a host where these cores are too few for the vCPUs; else none."""
        group = replace(self, cpus=self.within(cores))
        if not clusters:
            return group
        cluster = f"each vCPU stays in one cluster ({', '.join(map(str, clusters))}), and all in clusters of one kind"
        return replace(group, crowded=True, why="; ".join(filter(None, (self.why, f"{cluster}: CPUs {group.cpus}"))))

    def room(self, cpus: CpuSet) -> int:
        """vCPUs that may float there together."""
        here = len(self.within(cpus))
        return max(here, len(self.vcpus)) if here and self.crowded else here


@dataclass(frozen=True, slots=True)
class NumaBound:
    groups: tuple[VcpuGroup, ...]
    """With the unplugged vCPUs."""
    nodes: CpuSet | None
    """For the guest's other threads; None: any."""

    @property
    def why(self) -> str:
        return "; ".join(group.why for group in self.groups if group.why)

    def of(self, target: Target) -> VcpuGroup:
        if target.kind == "vcpu":
            return next((group for group in self.groups if target.part in group.vcpus), VcpuGroup(()))
        return VcpuGroup((), self.nodes, self.why)


def bound_of(guest: Guest, topology: Topology) -> NumaBound | None:
    """None where no vCPU has one."""
    if not (is_bound_to_nodes(guest) or guest.cpu_limits or guest.restriction):
        return None
    # A node that has lost its CPUs still binds.
    nodes = topology.cpus_by_node
    groups: dict[CpuSet | None, list[int]] = {}
    why: dict[CpuSet | None, list[str]] = {}
    for vcpu in guest.vcpus:
        cpus, reason = _bound(guest, vcpu.id, nodes)
        groups.setdefault(cpus, []).append(vcpu.id)
        why.setdefault(cpus, []).append(reason)
    if not any(cpus is not None for cpus in groups):
        return None
    near = None if None in groups else _whole_nodes(groups, nodes)
    if near is not None:
        near = allowed(guest, near & guest.restriction if guest.restriction else near)
    return NumaBound(tuple(VcpuGroup(tuple(vcpus), cpus, _joined(why[cpus])) for cpus, vcpus in groups.items()), near)


def is_bound_to_nodes(guest: Guest) -> bool:
    numa = guest.numa
    return bool(numa.bindings() or numa.huge_kib or numa.pins)


def allowed(guest: Guest, cpus: CpuSet) -> CpuSet:
    for limit in guest.cpu_limits:
        cpus &= limit.cpus
    return cpus


def bounds_of(guests: Iterable[Guest], topology: Topology) -> dict[str, NumaBound]:
    return {guest.uuid: bound for guest in guests if (bound := bound_of(guest, topology)) is not None}


def within_partitions(guests: Iterable[Guest], snapshot: Snapshot) -> Iterator[Guest]:
    """The guests with a limit for what partitions of cgroups leave to them: the innermost one of their own, without
    those of others."""
    every = (cgroup for guest in snapshot.guests for cgroup in guest.cgroups if not cgroup.state.invalid)
    partitions = {cgroup.path: cgroup.state.cpus for cgroup in every if cgroup.state.kind != "member"}
    for guest in guests:
        own = {ROOT: snapshot.topology.online} | {
            cgroup.path: partitions[cgroup.path] for cgroup in guest.cgroups if cgroup.path in partitions
        }
        path, cpus = own.popitem()
        taken = union(theirs for other, theirs in partitions.items() if other != path and other not in own)
        limits = (*guest.cpu_limits, CpuLimit(path, cpus - taken))
        yield replace(guest, cpu_limits=limits) if partitions else guest


def may_move_to(guest: Guest, node: int) -> bool:
    """Strict memory and huge pages stay where they are."""
    strict = all(node in binding.nodes for binding in guest.numa.bindings())
    return strict and not {other for other, kib in guest.numa.huge_kib.items() if kib} - {node}


def _bound(guest: Guest, vcpu: int, nodes: Mapping[int, CpuSet]) -> tuple[CpuSet | None, str]:
    bounds = list(_bounds(guest, vcpu, nodes))
    if not bounds:
        return None, ""
    cpus = bounds[0][0]
    for other, _ in bounds[1:]:
        cpus &= other
    cell = guest.numa.cell_of(vcpu)
    whose = f"cell {cell.id} has " if cell else "the guest has "
    return cpus, whose + " and ".join(reason for _, reason in bounds)


def _bounds(guest: Guest, vcpu: int, nodes: Mapping[int, CpuSet]) -> Iterator[tuple[CpuSet, str]]:
    binding, huge = guest.numa.binding_of(vcpu), sorted(node for node, kib in guest.numa.huge_kib.items() if kib)
    for ids, what in ((binding.nodes, "strict memory") if binding else (huge, "huge pages"),):
        if cpus := union(nodes.get(node, CpuSet()) for node in ids):
            yield cpus, f"{what} on node{'s' * (len(ids) > 1)} {CpuSet.of(ids)}"
    if pin := guest.numa.pins.get(vcpu):
        yield pin, f"CPUs {pin} from Nova"
    if guest.restriction:
        yield guest.restriction, f"CPUs {guest.restriction} from its definition (<vcpu cpuset>)"
    for limit in guest.cpu_limits:
        yield limit.cpus, f"CPUs {limit.cpus} from {limit}"


def _whole_nodes(groups: Iterable[CpuSet | None], nodes: Mapping[int, CpuSet]) -> CpuSet:
    every = union(cpus for cpus in groups if cpus is not None)
    near = union(cpus for cpus in nodes.values() if cpus & every)
    return near or every


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


NORMAL = 0
"""KiB; memory without huge pages."""
LOCAL, REMOTE = 10, 20
"""The distances of a machine without a distance table (the kernel's LOCAL_DISTANCE and REMOTE_DISTANCE)."""


@dataclass(frozen=True, slots=True)
class MemoryBalance:
    """Memory that no guest has; empty where the host reports none: it is unknown then, not missing."""

    free: Mapping[tuple[int, int], int]
    """KiB by node and page size in KiB; below 0 where guests have more than the node."""
    nearest: Mapping[int, int]

    @classmethod
    def of(
        cls, topology: Topology, guests: Iterable[Guest], elsewhere: Mapping[str, CpuSet] = MappingProxyType({})
    ) -> "MemoryBalance":
        """Beside the resident memory of all ``guests``. That of those ``elsewhere`` (CPUs by UUID) is booked there."""
        nearest = topology.memory_sources
        normal = {node.id: node.memory_kib - _pools_kib(node) for node in topology.nodes if node.memory_kib}
        for guest in guests:
            for node, kib in guest.memory_per_node.items():
                if node in normal:
                    normal[node] -= kib - guest.numa.huge_kib.get(node, 0)
        huge = {
            (node.id, pages.size_kib): pages.free * pages.size_kib
            for node in topology.nodes
            for pages in node.hugepages
        }
        balance = cls({(node, NORMAL): kib for node, kib in normal.items()} | huge if nearest else {}, nearest)
        for guest in guests:
            for here in _only_node(elsewhere.get(guest.uuid, CpuSet()) & topology.online, topology):
                balance = balance.booked(guest, everything(guest), here)
        return balance

    def room(self, node: int | None, page_kib: int = NORMAL) -> int | None:
        """None where the host reports no memory."""
        if node is None or (source := self.nearest.get(node)) is None:
            return None
        return max(self.free.get((source, page_kib), 0), 0)

    def rooms(self, page_kib: int = NORMAL) -> dict[int | None, int]:
        return {node: max(self.free.get((source, page_kib), 0), 0) for node, source in self.nearest.items()}

    def fits(self, guest: Guest, group: VcpuGroup, node: int | None) -> bool:
        room, kib = self.room(node, guest.numa.page_kib), outstanding(guest, group)
        return room is None or not kib or kib <= room

    def booked(self, guest: Guest, group: VcpuGroup, node: int | None, *, back: bool = False) -> "MemoryBalance":
        """``back``: the balance before that."""
        kib = outstanding(guest, group)
        if not kib or node is None or node not in self.nearest:
            return self
        key = self.nearest[node], guest.numa.page_kib
        return MemoryBalance({**self.free, key: self.free.get(key, 0) + (kib if back else -kib)}, self.nearest)


def everything(guest: Guest) -> VcpuGroup:
    return VcpuGroup(guest.plugged)


def share(guest: Guest, group: VcpuGroup) -> float:
    if cells := [cell for cell in guest.numa.cells if cell.vcpus and cell.memory_kib]:
        own = CpuSet.of(group.vcpus)
        kib = fsum(cell.memory_kib * len(cell.vcpus & own) / len(cell.vcpus) for cell in cells)
        return kib / sum(cell.memory_kib for cell in cells)
    return len(group.vcpus) / max(len(guest.plugged), 1)


def memory_of(guest: Guest, group: VcpuGroup) -> int:
    return ceil(round(guest.memory_kib * share(guest, group), 3))


def outstanding(guest: Guest, group: VcpuGroup) -> int:
    """KiB not got yet; 0 for huge pages of an unknown size: QEMU has them since its start."""
    if guest.numa.huge_kib and not guest.numa.page_kib:
        return 0
    resident = guest.numa.huge_kib if guest.numa.page_kib else guest.memory_per_node
    rest = max(guest.memory_kib - sum(resident.values()), 0)
    if group.vcpus == guest.plugged and not guest.numa.cells:
        return rest
    return ceil(round(rest * share(guest, group), 3))


def distance(nodes: Mapping[int, Node], one: int | None, other: int) -> int:
    """The firmware's distance, else the kernel's default."""
    table = nodes[one].distances if one is not None and one in nodes else {}
    return table.get(other, LOCAL if one == other else REMOTE)


def _pools_kib(node: Node) -> int:
    return sum(pages.total * pages.size_kib for pages in node.hugepages)


def _only_node(cpus: CpuSet, topology: Topology) -> Iterator[int]:
    yield from (node.id for node in topology.nodes if cpus and cpus <= node.cpus)
