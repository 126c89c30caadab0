from collections.abc import Collection, Iterable, Mapping
from math import fsum
from typing import NamedTuple

from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Node, NodeId
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa import (
    LOCAL,
    MemoryBalance,
    VcpuGroup,
    distance,
    is_bound_to_nodes,
    memory_of,
    outstanding,
)


class Preference(NamedTuple):
    """Of a node, for a guest; lower is better. The objective's terms come first, in its order."""

    remote_memory: float
    """MiB x distance, as the objective counts it."""
    remote_devices: int
    devices: float
    """Mean distance to them."""
    memory: float
    """Mean distance to it."""
    is_bare: bool
    """It has no memory."""


_ROOM = "node {} has room for {}the guest"
_DIGITS = 6
"""So few that the order of additions makes no difference."""
_MEMORY_DIGITS = 2
"""A smaller difference is none for the objective."""


def choose(
    snapshot: Snapshot,
    guest: Guest,
    group: VcpuGroup,
    capacity: Mapping[NodeId, int],
    free: Mapping[NodeId, int],
    memory: MemoryBalance | None = None,
    near: Mapping[NodeId, Preference] | None = None,
) -> NodeId:
    """The best node for the group. Raises NoFit with the numbers. It fits a node with enough CPUs (``capacity``) and
    ``memory`` (None: beside resident memory), unless it is bound: then its memory is where it must be. A node without
    memory counts with that of its nearest node, where the kernel allocates for it. ``near``: the guest's preferences,
    where they are known. Sorted by:

    1. whether the vCPUs fit the ``free`` CPUs;
    2. the guest's remote memory;
    3. the number of vCPUs for which no CPU is free;
    4. its remote PCI devices, and the mean distances to these and to the memory;
    5. whether the node has memory of its own;
    6. the number of free CPUs, descending; then the id.
    """
    size = len(group.vcpus)
    balance = MemoryBalance.of(snapshot.topology, snapshot.guests) if memory is None else memory

    fitting = _fitting(snapshot, guest, group, capacity, balance)
    preference = preferences(snapshot, guest, fitting) if near is None else near

    def rank(node: NodeId) -> tuple[bool, float, int, Preference, int, bool, int]:
        lacking = max(size - max(free[node], 0), 0)
        near = preference[node]
        return lacking > 0, near.remote_memory, lacking, near, -free[node], node is None, node or 0

    return min(fitting, key=rank)


def preferences(snapshot: Snapshot, guest: Guest, nodes: Collection[NodeId]) -> dict[NodeId, Preference]:
    known = snapshot.topology.node_by_id
    memory = _mean_distances(known, nodes, memory_shares(guest))
    devices = _device_nodes(snapshot, guest)
    bare = {node for node, each in known.items() if not each.memory_kib}
    away = _mean_distances(known, nodes, {node: devices.count(node) / len(devices) for node in devices})
    return {
        node: Preference(
            round(_remote_memory(known, guest, node), _MEMORY_DIGITS),
            sum(1 for other in devices if other not in (None, node)),
            round(away[node], _DIGITS),
            round(memory[node], _DIGITS),
            node in bare,
        )
        for node in nodes
    }


def _remote_memory(known: Mapping[int, Node], guest: Guest, here: int | None) -> float:
    return fsum(
        kib / 1024 * max(distance(known, here, node) / LOCAL - 1, 0.0)
        for node, kib in guest.memory_per_node.items()
        if node != here
    )


def _mean_distances(
    known: Mapping[int, Node], nodes: Collection[NodeId], shares: Mapping[NodeId, float]
) -> dict[NodeId, float]:
    parts = [(node, part) for node, part in shares.items() if node is not None]
    distances = dict.fromkeys(nodes, 0.0)
    for node in nodes if parts else ():
        if node is not None:
            distances[node] = fsum([part * distance(known, node, other) for other, part in parts])
    return distances


def with_memory(
    snapshot: Snapshot, guest: Guest, group: VcpuGroup, nodes: Iterable[NodeId], balance: MemoryBalance
) -> list[NodeId]:
    needed, rest, page = memory_of(guest, group), outstanding(guest, group), guest.numa.page_kib
    local, room = snapshot.topology.local_memory, balance.rooms(page) if rest else {}
    return [node for node in nodes if needed <= local.get(node, needed) and (not rest or rest <= room.get(node, rest))]


def _fitting(
    snapshot: Snapshot, guest: Guest, group: VcpuGroup, capacity: Mapping[NodeId, int], balance: MemoryBalance
) -> list[NodeId]:
    """Raises NoFit."""
    size = len(group.vcpus)
    large = [node for node in capacity if capacity[node] >= size]
    if not large:
        largest = max(capacity.values(), default=0)
        if group.why:
            raise NoFit(size, largest, f"{group.why}; {largest} of the CPUs there can be given to its vCPUs")
        raise NoFit(size, largest, f"no NUMA node has more than {largest} of the CPUs that vCPUs may use")
    if group.why and is_bound_to_nodes(guest):
        return large
    if not (fitting := with_memory(snapshot, guest, group, large, balance)):
        most = max(capacity[node] for node in large)
        raise NoFit(size, most, _too_little(snapshot, guest, group, large, balance))
    return fitting


def _too_little(
    snapshot: Snapshot, guest: Guest, group: VcpuGroup, large: Collection[NodeId], balance: MemoryBalance
) -> str:
    needed, most = memory_of(guest, group), max(snapshot.topology.local_memory.get(node, 0) for node in large)
    if needed > most:
        return f"no NUMA node with enough CPUs has the guest's {needed} KiB of memory; the largest has {most} KiB"
    page, rest = guest.numa.page_kib, outstanding(guest, group)
    rooms = {node: balance.room(node, page) or 0 for node in large}
    best = max(rooms, key=lambda node: (rooms[node], -(node or 0)))
    kind = f"memory in huge pages of {page} KiB" if page else "memory"
    return (
        f"no NUMA node with enough CPUs has {rest} KiB of {kind} left for the guest; "
        f"node {best} has the most, {rooms[best]} KiB"
    )


def reason(snapshot: Snapshot, guest: Guest, node: NodeId, part: str = "") -> str:
    """``part``: "part of " where the guest has other nodes, too."""
    if node is None:
        return "the host reports no NUMA nodes"
    room = _ROOM.format(node, part)
    if not (guest.memory_per_node or guest.pci):
        return room
    shares, devices = memory_shares(guest), _device_nodes(snapshot, guest)
    parts = (
        (shares.get(node, 0.0), "the guest's memory"),
        (devices.count(node) / max(len(devices), 1), "its PCI devices"),
    )
    near = " and ".join(f"{part:.0%} of {resource}" for part, resource in parts if part)
    return f"node {node} has {near}" if near else _near_memory(snapshot, shares, node) or room


def _near_memory(snapshot: Snapshot, shares: Mapping[NodeId, float], node: int) -> str:
    """For memory on a node without CPUs; else empty."""
    if not shares:
        return ""
    nodes = snapshot.topology.node_by_id
    bare = [
        each for each in shares if each is not None and each in nodes and not nodes[each].cpus and nodes[node].distances
    ]
    if not bare:
        return ""
    most = max(bare, key=lambda each: (shares[each], -each))
    return f"node {node} is at distance {distance(nodes, node, most)} from {shares[most]:.0%} of the guest's memory"


def memory_shares(guest: Guest) -> dict[NodeId, float]:
    """By node, 1 for all resident memory; empty: not known."""
    total = sum(guest.memory_per_node.values())
    return {node: kib / total for node, kib in guest.memory_per_node.items()} if total else {}


def _device_nodes(snapshot: Snapshot, guest: Guest) -> list[NodeId]:
    if not guest.pci:
        return []
    addresses = set(guest.pci)
    return [device.node for device in snapshot.topology.devices if device.kind == "pci" and device.name in addresses]
