"""The NUMA nodes of guests' memory, and how much of it would be remote."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest import Guest
from pinner.model.plan import GuestMemory, Wanted
from pinner.model.snapshot import Snapshot
from pinner.model.topology import Topology
from pinner.planning.numa_bounds import may_move_to


def guests_memory(snapshot: Snapshot, wanted: tuple[Wanted, ...]) -> tuple[GuestMemory, ...]:
    """The memory of every guest for which the kernel reports nodes. An unplaced guest counts with its current masks."""
    placed: dict[str, dict[int | None, CpuSet]] = {}
    for want in wanted:
        if want.target.kind == "vcpu":
            placed.setdefault(want.target.owner, {})[want.target.part] = want.cpus
    online, nodes = snapshot.topology.online, online_by_node(snapshot.topology)
    return tuple(
        GuestMemory(
            target=Target("memory", guest.uuid, started, guest.name),
            per_node=dict(guest.memory_per_node),
            remote_now_kib=_remote_kib(guest, {}, online, nodes),
            remote_kib=_remote_kib(guest, placed.get(guest.uuid, {}), online, nodes),
            home=_home_of(guest, snapshot.topology, union(placed.get(guest.uuid, {}).values())),
        )
        for guest in snapshot.guests
        for started in _started(guest)
        if any(guest.memory_per_node.values())
    )


def online_by_node(topology: Topology) -> dict[int, CpuSet]:
    """The online CPUs of each node."""
    online = topology.online
    return {node.id: node.cpus & online for node in topology.nodes}


def remote_vcpus(
    per_node: Mapping[int, int], masks: Iterable[CpuSet], online: CpuSet, nodes: Mapping[int, CpuSet]
) -> tuple[float, int]:
    """Two numbers for vCPUs with affinities ``masks`` and memory of ``per_node`` KiB.

    The first is the sum over vCPUs of the chance that the vCPU's CPU and a page lie on different nodes, the second is
    the number of vCPUs with an online CPU. ``nodes`` are the online CPUs of each node.
    """
    total, running = 0.0, 0
    for mask, vcpus in Counter(masks).items():
        if cpus := mask & online:
            local = sum(len(cpus & nodes[node]) * kib for node, kib in per_node.items() if node in nodes)
            total += vcpus * (1.0 - local / (len(cpus) * sum(per_node.values())))
            running += vcpus
    return total, running


def _remote_kib(guest: Guest, placed: Mapping[int | None, CpuSet], online: CpuSet, nodes: Mapping[int, CpuSet]) -> int:
    """The mean over the vCPUs with an online CPU."""
    masks = (placed.get(vcpu.id, vcpu.thread.affinity) for vcpu in guest.vcpus if vcpu.thread)
    total, running = remote_vcpus(guest.memory_per_node, masks, online, nodes)
    return round(sum(guest.memory_per_node.values()) * total / running) if running else 0


def _home_of(guest: Guest, topology: Topology, cpus: CpuSet) -> int | None:
    """The node to which the guest's memory may move, next to its vCPUs' CPUs; None where it has to stay."""
    home = _home(topology, cpus)
    return home if home is not None and may_move_to(guest, home) else None


def _home(topology: Topology, cpus: CpuSet) -> int | None:
    """The one node of all these CPUs, if the host has another node with memory; else None."""
    homes = [node for node in topology.nodes if node.cpus & cpus]
    outside = cpus - union(node.cpus for node in homes)
    others = [node for node in topology.nodes if node.memory_kib and node not in homes]
    return homes[0].id if len(homes) == 1 and homes[0].memory_kib and others and not outside else None


def _started(guest: Guest) -> Iterator[int]:
    """When QEMU started, by its first thread."""
    return (thread.started for thread in guest.emulator.threads if thread.tid == guest.pid)
