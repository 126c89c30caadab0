"""Chooses a NUMA node for a guest."""

from collections.abc import Collection, Mapping

from pinner.model import topology
from pinner.model.errors import NoFit
from pinner.model.guest import Guest
from pinner.model.snapshot import Snapshot
from pinner.planning.numa_bounds import VcpuGroup

Node = int | None
"""A node's id; None where the kernel reports no nodes."""


def choose(
    snapshot: Snapshot,
    guest: Guest,
    group: VcpuGroup,
    capacity: Mapping[Node, int],
    free: Mapping[Node, int],
    here: Collection[Node] = (),
) -> Node:
    """The best of the nodes where the group of the guest's vCPUs fits. Raises NoFit with the numbers where it fits
    none.

    It fits a node with enough CPUs for its vCPUs (``capacity``) and with at least as much memory as the guest has,
    unless the group is bound: then its memory is where it must be. A node without memory of its own counts with the
    memory of its nearest node, where the kernel allocates for it. These nodes are sorted by:
    1. whether the group's vCPUs fit its ``free`` CPUs;
    2. the sum of its shares of the guest's memory and PCI devices (a share of 1 is all of them), descending;
    3. its share of the devices, descending;
    4. whether it has memory of its own;
    5. whether the guest runs there already (``here``);
    6. the number of free CPUs, descending;
    7. the id, ascending.
    """
    asked = len(group.vcpus)
    pages, devices = memory_shares(guest), _device_shares(snapshot, guest)
    bare = {node.id for node in snapshot.topology.nodes if not node.memory_kib}

    def rank(node: Node) -> tuple[bool, float, float, bool, bool, int, bool, int]:
        near = devices.get(node, 0.0)
        return (
            free[node] < asked,
            -(pages.get(node, 0.0) + near),
            -near,
            node in bare,
            node not in here,
            -free[node],
            node is None,
            node or 0,
        )

    return min(_fitting(snapshot, guest, group, capacity), key=rank)


def _fitting(snapshot: Snapshot, guest: Guest, group: VcpuGroup, capacity: Mapping[Node, int]) -> list[Node]:
    """The nodes with enough CPUs and memory for the vCPUs. Raises NoFit with the numbers where there is none."""
    asked = len(group.vcpus)
    large = [node for node in capacity if capacity[node] >= asked]
    if not large:
        largest = max(capacity.values(), default=0)
        if group.why:
            raise NoFit(asked, largest, f"{group.why}; {largest} of the CPUs there can be given to its vCPUs")
        raise NoFit(asked, largest, f"no NUMA node has more than {largest} of the CPUs that vCPUs may use")
    if group.why:
        return large
    memory = local_memory(snapshot)
    fitting = [node for node in large if memory.get(node, guest.memory_kib) >= guest.memory_kib]
    if not fitting:
        most = max(memory.get(node, 0) for node in large)
        asked_kib = guest.memory_kib
        why = f"no NUMA node with enough CPUs has the guest's {asked_kib} KiB of memory; the largest has {most} KiB"
        raise NoFit(asked, max(capacity[node] for node in large), why)
    return fitting


def reason(snapshot: Snapshot, guest: Guest, node: Node) -> str:
    """Why the guest gets this node, for people."""
    if node is None:
        return "the host reports no NUMA nodes"
    shares = (
        (memory_shares(guest).get(node, 0.0), "the guest's memory"),
        (_device_shares(snapshot, guest).get(node, 0.0), "its PCI devices"),
    )
    near = " and ".join(f"{share:.0%} of {resource}" for share, resource in shares if share)
    return f"node {node} has {near or 'room for the guest'}"


def memory_shares(guest: Guest) -> dict[Node, float]:
    """The share of the guest's resident memory on each node, 1 for all of it; empty where it is not known."""
    total = sum(guest.memory_per_node.values())
    return {node: kib / total for node, kib in guest.memory_per_node.items()} if total else {}


def _device_shares(snapshot: Snapshot, guest: Guest) -> dict[Node, float]:
    addresses = set(guest.pci)
    nodes = [device.node for device in snapshot.topology.devices if device.kind == "pci" and device.name in addresses]
    return {node: nodes.count(node) / len(nodes) for node in nodes if node is not None}


def local_memory(snapshot: Snapshot) -> dict[Node, int]:
    """The memory in KiB that is local to each node's CPUs; empty where no node reports any: then memory is unknown, not
    missing."""
    own = {node.id: node.memory_kib for node in snapshot.topology.nodes if node.memory_kib}
    if not own:
        return {}
    return {node.id: own.get(node.id) or own[_nearest(node, own)] for node in snapshot.topology.nodes}


def _nearest(node: topology.Node, own: Mapping[int, int]) -> int:
    """The nearest of the nodes with memory. The largest of several; the largest of all without a distance table."""
    return min(own, key=lambda other: (node.distances.get(other, 0), -own[other], other))
