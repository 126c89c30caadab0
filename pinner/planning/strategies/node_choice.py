"""Which NUMA node suits a guest."""

from collections.abc import Collection, Mapping

from pinner.model.errors import NoFit
from pinner.model.guest import Guest
from pinner.model.snapshot import Snapshot
from pinner.planning.context import plugged

Node = int | None
"""A node's id; None where the kernel tells no node."""


def choose(
    snapshot: Snapshot,
    guest: Guest,
    capacity: Mapping[Node, int],
    free: Mapping[Node, int],
    here: Collection[Node] = (),
) -> Node:
    """The best of the nodes where the guest fits.

    It fits where ``capacity`` (CPUs for vCPUs) holds its vCPUs and the node's memory holds its own. Best is a node with
    as many ``free`` CPUs as it has vCPUs; then the one with most of its memory and PCI devices (a share of 1 for all of
    each, devices first where that ties); then where it is already (``here``); then with most free CPUs; then with the
    lowest id. Raises NoFit with the numbers.
    """
    asked = len(plugged(guest))
    roomy = [node for node in capacity if capacity[node] >= asked]
    if not roomy:
        largest = max(capacity.values(), default=0)
        raise NoFit(asked, largest, f"no NUMA node has more than {largest} of the CPUs that vCPUs may use")
    memory = _memory(snapshot)
    fitting = [node for node in roomy if memory.get(node, guest.memory_kib) >= guest.memory_kib]
    if not fitting:
        most = max(memory.get(node, 0) for node in roomy)
        why = f"no NUMA node with as many CPUs has its {guest.memory_kib} KiB of memory; the most has {most} KiB"
        raise NoFit(asked, max(capacity[node] for node in roomy), why)
    pages, devices = memory_shares(guest), _device_shares(snapshot, guest)

    def rank(node: Node) -> tuple[bool, float, float, bool, int, bool, int]:
        near = devices.get(node, 0.0)
        return (
            free[node] < asked,
            -(pages.get(node, 0.0) + near),
            -near,
            node not in here,
            -free[node],
            node is None,
            node or 0,
        )

    return min(fitting, key=rank)


def reason(snapshot: Snapshot, guest: Guest, node: Node) -> str:
    """What speaks for the node, for people."""
    if node is None:
        return "the host tells no NUMA nodes"
    shares = (
        (memory_shares(guest).get(node, 0.0), "the guest's memory"),
        (_device_shares(snapshot, guest).get(node, 0.0), "its PCI devices"),
    )
    near = " and ".join(f"{share:.0%} of {what}" for share, what in shares if share)
    return f"node {node} has {near or 'room for the guest'}"


def memory_shares(guest: Guest) -> dict[Node, float]:
    """How much of the guest's resident memory lies on each node, 1 for all; empty where that is not known."""
    total = sum(guest.memory_per_node.values())
    return {node: kib / total for node, kib in guest.memory_per_node.items()} if total else {}


def _device_shares(snapshot: Snapshot, guest: Guest) -> dict[Node, float]:
    addresses = set(guest.pci)
    nodes = [device.node for device in snapshot.topology.devices if device.kind == "pci" and device.name in addresses]
    return {node: nodes.count(node) / len(nodes) for node in nodes if node is not None}


def _memory(snapshot: Snapshot) -> dict[Node, int]:
    """Each node's memory in KiB; empty where no node tells any, so that a memory-less node is told from an unknown."""
    memory: dict[Node, int] = {node.id: node.memory_kib for node in snapshot.topology.nodes}
    return memory if any(memory.values()) else {}
