"""What a plan changes: wanted affinities and states against the actual ones, and the guests' memory; and whether the
CPUs that it hands out one by one are still free: another plan may have been applied since.

A guest leaves its CPUs before others get them, so no CPU is the only one of vCPUs of two guests in between. Guests that
exchange CPUs have no such order.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pinner.model.change import (
    AffinityChange,
    PartPin,
    PlannedChange,
    StateChange,
    Target,
    TargetKey,
    ThreadMask,
    of_vcpus,
)
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import StalePlan
from pinner.model.guest.guest import Guest
from pinner.model.kinds import KINDS, PINNED
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import GuestMemory, Plan, Wanted, vcpus_by_guest
from pinner.model.snapshot import Snapshot, restricted
from pinner.model.states import PartitionState
from pinner.planning.available.exclusions import is_exclusive
from pinner.planning.available.numa import may_move_to
from pinner.planning.request.context import Context


def changes(context: Context, wanted: tuple[Wanted, ...]) -> tuple[PlannedChange, ...]:
    """``before`` has every thread of a target, so that an undo is exact. A placement by hand also changes parts that
    others have pinned there: their pins become pinner's."""
    needed: list[PlannedChange] = []
    own = {(guest.uuid, pin) for guest in context.snapshot.guests for pin in guest.own_pins}
    for want in wanted:
        if want.state is not None:
            before = context.settings[want.target]
            if before != want.state:
                needed.append(StateChange(want.target, before, want.state, want.reason))
            continue
        threads, bits = context.threads[want.target], want.cpus.bits
        adopts = bool(context.request.placement) and want.target.kind in PINNED and not _is_own(want, own)
        if adopts or not threads or [thread for thread in threads if thread.affinity.bits != bits]:
            masks = tuple([ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads])
            needed.append(AffinityChange(want.target, masks, want.cpus, want.reason))
    rank = ranks(needed)
    return tuple(sorted(needed, key=lambda each: (KINDS[each.target.kind].order or 0, rank.get(each.target.owner, 0))))


def _is_own(want: Wanted, own: Container[tuple[str, PartPin]]) -> bool:
    return (want.target.owner, PartPin(want.target.kind, want.target.part, want.cpus)) in own


def ranks(changes: Iterable[PlannedChange]) -> dict[str, int]:
    """By UUID; guests without an order are last."""
    ordered, stuck = _ordered(changes)
    return {uuid: position for position, uuid in enumerate((*ordered, *stuck))}


def exchanging(changes: Iterable[PlannedChange]) -> tuple[Target, ...]:
    changes = tuple(changes)
    _, stuck = _ordered(changes)
    if not stuck:
        return ()
    targets = {change.target.owner: change.target for change in of_vcpus(changes)}
    return tuple(targets[uuid] for uuid in stuck)


def exchange_warning(changes: Iterable[PlannedChange]) -> str:
    if not (guests := exchanging(changes)):
        return ""
    names = ", ".join(sorted(target.name for target in guests))
    return f"guests {names} exchange CPUs: while the plan is applied, vCPUs of two guests share a CPU for a moment"


def _ordered(changes: Iterable[PlannedChange]) -> tuple[list[str], list[str]]:
    return valid_order(_waits(tuple(of_vcpus(changes))))


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


def require_free(plan: Plan, snapshot: Snapshot) -> None:
    """Raises StalePlan where the plan gives a vCPU a CPU to itself to which another guest's vCPU is pinned, unless that
    guest moves, or was there when the plan was made (``contested``). With smt ``isolate``, whole cores count."""
    handed_out = _handed_out(plan, snapshot)
    known = {left.target.owner for left in (*plan.unplaced, *plan.skipped) if left.target.kind == "guest"}
    moved = tuple(
        f"CPUs {cpus} are in use by guest {use.name}, which was pinned there since"
        for use in _in_use(plan, snapshot)
        if (cpus := use.cpus & handed_out - (plan.contested if use.guest in known else CpuSet()))
    )
    if moved:
        raise StalePlan(plan.id, moved)


def contested(plan: Plan, snapshot: Snapshot) -> CpuSet:
    """CPUs that a plan hands out one by one, though a vCPU of an unplaced guest, or one in backoff, is pinned there."""
    used = union(use.cpus for use in _in_use(plan, snapshot))
    # Before its first plan a host has no pinned vCPU, and after it a plan hands out nothing.
    return used & _handed_out(plan, snapshot) if used else used


@dataclass(frozen=True, slots=True)
class _Use:
    guest: str
    name: str
    cpus: CpuSet


def _handed_out(plan: Plan, snapshot: Snapshot) -> CpuSet:
    """CPUs for one vCPU each that it does not have yet: isolated ones, and those of ``exclusive`` guests."""
    exclusive = {guest.uuid for guest in snapshot.guests if is_exclusive(guest, plan.request)}
    isolated = snapshot.topology.isolated | union(
        change.after.cpus
        for change in plan.changes
        if isinstance(change, StateChange)
        and isinstance(change.after, PartitionState)
        and change.after.kind == "isolated"
    )
    if not (isolated or exclusive):
        return isolated
    now: dict[tuple[str, int | None], CpuSet] = {
        (guest.uuid, vcpu): cpus for guest in snapshot.guests for vcpu, cpus in guest.vcpu_affinities.items()
    }
    cpus = union(
        change.after
        for change in of_vcpus(plan.changes)
        if len(change.after) == 1 and now.get((change.target.owner, change.target.part)) != change.after
        if change.after <= isolated or change.target.owner in exclusive
    )
    if plan.request.smt == "isolate":
        return cpus | union(cpu.siblings for cpu in snapshot.topology.cpus if cpu.id in cpus)
    return cpus


def _in_use(plan: Plan, snapshot: Snapshot) -> Iterator[_Use]:
    moved = {(change.target.owner, change.target.part) for change in of_vcpus(plan.changes)}
    for guest in snapshot.guests:
        ones = [(vcpu, cpus) for vcpu, cpus in guest.vcpu_affinities.items() if cpus.bits.bit_count() == 1]
        if staying := [cpus for vcpu, cpus in ones if (guest.uuid, vcpu) not in moved]:
            yield _Use(guest.uuid, guest.name, union(staying))


def staying(snapshot: Snapshot, moved: Container[TargetKey]) -> CpuSet:
    threads = (
        vcpu.thread
        for guest in snapshot.guests
        for vcpu in guest.vcpus
        if vcpu.thread is not None and guest.vcpu_targets[vcpu.id].key not in moved
    )
    return restricted(threads, snapshot)
