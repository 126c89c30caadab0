"""Where guests' memory lies, and how much of it would be remote."""

from collections.abc import Iterator, Mapping

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest import Guest
from pinner.model.plan import GuestMemory, Target, Wanted
from pinner.model.snapshot import Snapshot
from pinner.model.topology import Topology


def guests_memory(snapshot: Snapshot, wanted: tuple[Wanted, ...]) -> tuple[GuestMemory, ...]:
    """The memory of every guest whose nodes the kernel tells; those that are not placed stay as they are."""
    placed: dict[str, dict[int | None, CpuSet]] = {}
    for want in wanted:
        if want.target.kind == "vcpu":
            placed.setdefault(want.target.owner, {})[want.target.part] = want.cpus
    return tuple(
        GuestMemory(
            target=Target("memory", guest.uuid, started, guest.name),
            per_node=dict(guest.memory_per_node),
            remote_now_kib=_remote_kib(snapshot.topology, guest, {}),
            remote_kib=_remote_kib(snapshot.topology, guest, placed.get(guest.uuid, {})),
            home=_home(snapshot.topology, union(placed.get(guest.uuid, {}).values())),
        )
        for guest in snapshot.guests
        for started in _started(guest)
        if any(guest.memory_per_node.values())
    )


def online_by_node(topology: Topology) -> dict[int, CpuSet]:
    """Each node's CPUs that run threads."""
    online = topology.online
    return {node.id: node.cpus & online for node in topology.nodes}


def remote_share(per_node: Mapping[int, int], cpus: CpuSet, nodes: Mapping[int, CpuSet]) -> float:
    """The chance that one of ``cpus`` (online ones, at least one) and a page of the memory lie on different nodes."""
    local = sum(len(cpus & nodes[node]) * kib for node, kib in per_node.items() if node in nodes)
    return 1.0 - local / (len(cpus) * sum(per_node.values()))


def _remote_kib(topology: Topology, guest: Guest, placed: Mapping[int | None, CpuSet]) -> int:
    """The mean over the vCPUs that run somewhere."""
    online, nodes = topology.online, online_by_node(topology)
    masks = [placed.get(vcpu.id, vcpu.thread.affinity) & online for vcpu in guest.vcpus if vcpu.thread]
    shares = [remote_share(guest.memory_per_node, mask, nodes) for mask in masks if mask]
    return round(sum(guest.memory_per_node.values()) * sum(shares) / len(shares)) if shares else 0


def _home(topology: Topology, cpus: CpuSet) -> int | None:
    """The one node of these CPUs, where there is another that memory could lie on."""
    homes = [node for node in topology.nodes if node.cpus & cpus]
    outside = cpus - union(node.cpus for node in homes)
    others = [node for node in topology.nodes if node.memory_kib and node not in homes]
    return homes[0].id if len(homes) == 1 and homes[0].memory_kib and others and not outside else None


def _started(guest: Guest) -> Iterator[int]:
    """When QEMU started, by its first thread."""
    return (thread.started for thread in guest.emulator.threads if thread.tid == guest.pid)
