"""The NUMA nodes of guests' memory, and how much of it would be remote."""

from collections.abc import Iterator, Mapping

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import GuestMemory, Wanted, vcpus_by_guest
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa_bounds import may_move_to


def guests_memory(snapshot: Snapshot, wanted: tuple[Wanted, ...]) -> tuple[GuestMemory, ...]:
    """An unplaced guest counts with its current masks."""
    placed = vcpus_by_guest(wanted)
    spread = Spread(snapshot.topology)
    return tuple(
        GuestMemory(
            target=Target("memory", guest.uuid, started, guest.name),
            per_node=dict(guest.memory_per_node),
            remote_now_kib=_remote_kib(guest, {}, spread),
            remote_kib=_remote_kib(guest, placed.get(guest.uuid, {}), spread),
            home=_home_of(guest, snapshot.topology, union(placed.get(guest.uuid, {}).values())),
        )
        for guest in snapshot.guests
        for started in _started(guest)
        if any(guest.memory_per_node.values())
    )


class Spread(dict[int, tuple[int, Mapping[int, int]]]):
    """By the bits of a mask: its online CPUs, and those on each node."""

    def __init__(self, topology: Topology) -> None:
        super().__init__()
        self._online = topology.online.bits
        self._nodes = {node.id: (node.cpus & topology.online).bits for node in topology.nodes}

    def __missing__(self, mask: int) -> tuple[int, Mapping[int, int]]:
        cpus = mask & self._online
        on_nodes = {node: count for node, here in self._nodes.items() if (count := (cpus & here).bit_count())}
        self[mask] = found = cpus.bit_count(), on_nodes
        return found


def _remote_kib(guest: Guest, placed: Mapping[int, CpuSet], spread: Spread) -> int:
    """The mean over the vCPUs that have an online CPU."""
    far, running, every = 0.0, 0, sum(guest.memory_per_node.values())
    for vcpu in guest.vcpus:
        cpus, on_nodes = spread[placed.get(vcpu.id, vcpu.thread.affinity).bits] if vcpu.thread else (0, {})
        if cpus:
            local = sum([on_nodes.get(node, 0) * kib for node, kib in guest.memory_per_node.items()])
            far += 1.0 - local / (cpus * every)
            running += 1
    return round(every * far / running) if running else 0


def _home_of(guest: Guest, topology: Topology, cpus: CpuSet) -> int | None:
    home = _home(topology, cpus)
    return home if home is not None and may_move_to(guest, home) else None


def _home(topology: Topology, cpus: CpuSet) -> int | None:
    """None also where the host has no other node with memory."""
    homes = [node for node in topology.nodes if not node.cpus.isdisjoint(cpus)]
    if len(homes) != 1 or not homes[0].memory_kib or not cpus <= homes[0].cpus:
        return None
    others = any(node.memory_kib for node in topology.nodes if node is not homes[0])
    return homes[0].id if others else None


def _started(guest: Guest) -> Iterator[int]:
    return (thread.started for thread in guest.emulator.threads if thread.tid == guest.pid)
