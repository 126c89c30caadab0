"""What a plan changes: wanted affinities and states against the actual ones, and the guests' memory.

A guest leaves its CPUs before others get them, so no CPU is the only one of vCPUs of two guests in between. Guests that
exchange CPUs have no such order.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pinner.model.change import AffinityChange, PlannedChange, StateChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.kinds import KINDS
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import GuestMemory, Wanted, vcpus_by_guest
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa import may_move_to
from pinner.planning.request.context import Context


def changes(context: Context, wanted: tuple[Wanted, ...]) -> tuple[PlannedChange, ...]:
    """``before`` has every thread of a target, also those with the wanted mask, so that an undo is exact."""
    needed: list[PlannedChange] = []
    for want in wanted:
        if want.state is not None:
            before = context.settings[want.target]
            if before != want.state:
                needed.append(StateChange(want.target, before, want.state, want.reason))
            continue
        threads, bits = context.threads[want.target], want.cpus.bits
        if not threads or [thread for thread in threads if thread.affinity.bits != bits]:
            masks = tuple([ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads])
            needed.append(AffinityChange(want.target, masks, want.cpus, want.reason))
    rank = ranks(needed)
    return tuple(sorted(needed, key=lambda each: (KINDS[each.target.kind].order or 0, rank.get(each.target.owner, 0))))


def ranks(changes: Iterable[PlannedChange]) -> dict[str, int]:
    """By UUID; guests without an order are last."""
    ordered, stuck = _ordered(changes)
    return {uuid: position for position, uuid in enumerate((*ordered, *stuck))}


def exchanging(changes: Iterable[PlannedChange]) -> tuple[Target, ...]:
    """A vCPU of each guest without an order."""
    changes = tuple(changes)
    _, stuck = _ordered(changes)
    if not stuck:
        return ()
    targets = {change.target.owner: change.target for change in changes if change.target.kind == "vcpu"}
    return tuple(targets[uuid] for uuid in stuck)


def exchange_warning(changes: Iterable[PlannedChange]) -> str:
    if not (guests := exchanging(changes)):
        return ""
    names = ", ".join(sorted(target.name for target in guests))
    return f"guests {names} exchange CPUs: while the plan is applied, vCPUs of two guests share a CPU for a moment"


def _ordered(changes: Iterable[PlannedChange]) -> tuple[list[str], list[str]]:
    return valid_order(
        _waits([each for each in changes if isinstance(each, AffinityChange) and each.target.kind == "vcpu"])
    )


def valid_order(waits: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """The guests, each after those for which it waits, and those without such an order."""
    if not any(waits.values()):
        return list(waits), []
    waiting, ordered = dict.fromkeys(waits), []
    while ready := next((uuid for uuid in waiting if waiting.keys().isdisjoint(waits[uuid])), None):
        ordered.append(ready)
        del waiting[ready]
    return ordered, list(waiting)


def _waits(vcpus: Sequence[AffinityChange]) -> Mapping[str, Collection[str]]:
    owners = dict.fromkeys([change.target.owner for change in vcpus])
    leaving = {
        bits: change.target.owner
        for change in vcpus
        for mask in change.before
        if (bits := mask.cpus.bits).bit_count() == 1 and bits != change.after.bits
    }
    if not leaving:
        return dict.fromkeys(owners, ())
    waits: dict[str, set[str]] = {owner: set() for owner in owners}
    for change in vcpus:
        other = leaving.get(change.after.bits, change.target.owner)
        if other != change.target.owner:
            waits[change.target.owner].add(other)
    return waits


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
    """Bits of a mask to its online CPUs, and those on each node."""

    def __init__(self, topology: Topology) -> None:
        super().__init__()
        self._online = topology.online.bits
        self._nodes = {node.id: (node.cpus & topology.online).bits for node in topology.nodes}

    def __missing__(self, mask: int) -> tuple[int, Mapping[int, int]]:
        cpus = mask & self._online
        on_nodes = {node: count for node, here in self._nodes.items() if (count := (cpus & here).bit_count())}
        self[mask] = counts = cpus.bit_count(), on_nodes
        return counts


def _remote_kib(guest: Guest, placed: Mapping[int, CpuSet], spread: Spread) -> int:
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
