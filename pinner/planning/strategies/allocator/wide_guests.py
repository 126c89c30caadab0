"""Guests that are wider than every NUMA node: they span the fewest nodes, cell by cell where they have cells."""

from collections.abc import Mapping
from itertools import accumulate

from pinner.model.cpuset import CpuSet
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.planning.available.numa_bounds import VcpuGroup


def fewest(size: int, free: Mapping[NodeId, int]) -> int:
    """The fewest nodes that have so many free CPUs together; all and one more where all have too few."""
    sums = list(accumulate(sorted(free.values(), reverse=True)))
    return next((count for count, most in enumerate(sums, start=1) if most >= size), len(sums) + 1)


def parts(guest: Guest, free: Mapping[NodeId, int]) -> dict[VcpuGroup, NodeId]:
    """The guest's plugged-in vCPUs in parts, each with its node: on the fewest nodes with whole cells, else on the
    fewest. Raises NoFit where all nodes together have too few CPUs."""
    vcpus = guest.plugged
    if (least := fewest(len(vcpus), free)) > len(free):
        total = sum(free.values())
        raise NoFit(len(vcpus), total, f"all NUMA nodes together have {total} of the CPUs that vCPUs may use")
    nodes = sorted(free, key=lambda node: (-free[node], node is None, node or 0))
    for count in range(least, len(nodes) + 1):
        if found := _by_cells(guest, {node: free[node] for node in nodes[:count]}):
            return found
    found, begin = {}, 0
    for node in nodes[:least]:
        if here := vcpus[begin : begin + free[node]]:
            found[VcpuGroup(tuple(here))] = node
        begin += len(here)
    return found


def parts_pinned(guest: Guest, masks: Mapping[int, CpuSet], nodes: Mapping[NodeId, CpuSet]) -> list[VcpuGroup]:
    """The guest's vCPUs in parts by the node of their CPUs. Raises NoFit where a vCPU is not on one node."""
    found: dict[NodeId, list[int]] = {}
    for vcpu in guest.plugged:
        mask = masks.get(vcpu, CpuSet())
        homes = [node for node, cpus in nodes.items() if mask and mask <= cpus]
        if not homes:
            raise NoFit(len(guest.plugged), 0, f"vCPU {vcpu} is not pinned to CPUs of one node")
        found.setdefault(homes[0], []).append(vcpu)
    return [VcpuGroup(tuple(vcpus)) for vcpus in found.values()]


def _by_cells(guest: Guest, free: dict[NodeId, int]) -> dict[VcpuGroup, NodeId]:
    """Whole cells on these nodes, the widest first; empty where they do not fit, or the guest has no cells."""
    here = set(guest.plugged)
    cells = [sorted(here.intersection(cell.vcpus)) for cell in guest.numa.cells]
    if sum(map(len, cells)) != len(here):
        return {}
    chosen: dict[NodeId, list[int]] = {}
    for cell in sorted(filter(None, cells), key=lambda cell: (-len(cell), cell)):
        node = next((node for node, count in free.items() if count >= len(cell)), -1)
        if node == -1:
            return {}
        chosen.setdefault(node, []).extend(cell)
        free[node] -= len(cell)
    return {VcpuGroup(tuple(sorted(vcpus))): node for node, vcpus in chosen.items()}
