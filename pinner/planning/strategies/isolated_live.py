"""The live form of ``isolated``: the unit of every guest becomes an isolated cgroup v2 partition.

The parent of a partition must be a partition too, and partitions share no CPU (the kernel's
Documentation/admin-guide/cgroup-v2.rst). So the guests' slice becomes a partition with all CPUs but housekeeping's. In
it each guest's scope becomes a partition with a CPU for each vCPU and one for QEMU's own threads, which cannot run
outside the partition. Because they have only one CPU, the kernel need not balance these threads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pinner.model.change import PartitionState
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest import Guest
from pinner.model.plan import LeftOut, Wanted
from pinner.planning import isolation
from pinner.planning.context import Context, guest_target
from pinner.planning.partitions import WORK, cgroup_target
from pinner.planning.roles import Resolved
from pinner.planning.strategies import node_choice
from pinner.planning.strategies.common import pin, place_emulator, place_host_processes
from pinner.planning.strategies.cpu_allocator import GuestAllocation, allocate
from pinner.planning.strategy import Answer

_UNIT_DEPTH = 2
"""The number of units above a guest: its slice, and its scope in that."""
_NOTE = (
    "Live until the next boot or until the guest stops: load balancing and unbound kernel work leave the CPUs. Their "
    "tick (nohz_full), RCU callbacks (rcu_nocbs) and managed interrupts stay."
)


def place(context: Context, resolved: Resolved) -> Answer:
    """Each vCPU on one CPU, and a partition for each guest; blocked where this host cannot have partitions."""
    roles = replace(resolved.roles, vcpu=resolved.roles.vcpu - context.allocatable.exclusive)
    allocation = allocate(context, roles.vcpu)
    emulators = _emulators(context, resolved, allocation.places)
    guests = [guest for guest in context.guests if guest.uuid in emulators]
    scopes = {
        guest.uuid: emulators[guest.uuid] | CpuSet.of(allocation.places[guest.uuid].cpus.values()) for guest in guests
    }
    whole = (
        context.allocatable.online - context.allocatable.isolated - roles.housekeeping - context.allocatable.restricted
    )
    wanted = list(place_host_processes(context, roles))
    for guest in guests:
        where = allocation.places[guest.uuid]
        why = f"an isolated CPU of its own; {node_choice.reason(context.snapshot, guest, where.node)}"
        wanted += (*place_emulator(guest, emulators[guest.uuid]), *pin(guest, where.cpus, why))
    isolated = union(scopes.values())
    blocked = _obstacle(context, guests, whole - isolated)
    if not blocked:
        wanted += _partitions(context, guests, scopes, whole)
    needs = isolation.describe(context.snapshot.topology.kernel, isolated, context.snapshot.topology.isolated)
    return Answer(
        roles,
        tuple(wanted),
        (*allocation.unplaced, *_without_emulator_cpu(context, allocation.places, emulators)),
        resolved.warnings,
        replace(needs, partition=(), partition_note=_NOTE) if context.snapshot.topology.kernel.partitions else needs,
        blocked,
    )


def _emulators(context: Context, resolved: Resolved, places: Mapping[str, GuestAllocation]) -> dict[str, CpuSet]:
    """A CPU for QEMU's own threads of each guest, by UUID. Guests that get none are left out.

    It is the recorded CPU, else the current one if it is free, else one on the guest's node, else any.
    """
    free = resolved.roles.emulator - resolved.roles.housekeeping
    allocated = [guest for guest in context.guests if guest.uuid in places]
    chosen: dict[str, CpuSet] = {}
    for preferred in (_recorded, _current, None):
        for guest in allocated:
            near = resolved.emulator_on.get(places[guest.uuid].node, free) & free or free
            if preferred is not None:
                near = free & preferred(context, guest)
            if near and guest.uuid not in chosen:
                chosen[guest.uuid] = CpuSet.of([min(near)])
                free = free - chosen[guest.uuid]
    return chosen


def _recorded(context: Context, guest: Guest) -> CpuSet:
    return context.places.get(("emulator", guest.uuid, None), CpuSet())


def _current(context: Context, guest: Guest) -> CpuSet:
    if context.request.rebalance:
        return CpuSet()
    return union(thread.affinity for thread in guest.emulator.threads if len(thread.affinity) == 1)


def _without_emulator_cpu(
    context: Context, places: Mapping[str, GuestAllocation], emulators: Mapping[str, CpuSet]
) -> Iterator[LeftOut]:
    for guest in context.guests:
        if guest.uuid in places and guest.uuid not in emulators:
            why = (
                f"its emulator threads need a CPU of the emulator set for themselves, and all {len(emulators)} are in "
                "use; ask for a larger emulator set"
            )
            yield LeftOut(guest_target(guest), why)


def _obstacle(context: Context, guests: list[Guest], left: CpuSet) -> str:
    """Why this host cannot have the partitions; empty where it can."""
    kernel = context.snapshot.topology.kernel
    parents = {guest.cgroups[0].path for guest in guests if len(guest.cgroups) == _UNIT_DEPTH}
    misplaced = [guest.name for guest in guests if len(guest.cgroups) != _UNIT_DEPTH]
    if not kernel.partitions:
        return isolation.no_partitions(kernel)
    if misplaced:
        names = ", ".join(misplaced)
        return f"guests {names} are not in a systemd scope of a slice with the cpuset controller of cgroup v2"
    if len(parents) > 1:
        return f"the guests are in different slices ({', '.join(sorted(parents))}), whose partitions cannot share CPUs"
    if guests and not left:
        return "no CPU would be left outside the guests' partitions: no other guest could start"
    return ""


def _partitions(context: Context, guests: list[Guest], scopes: Mapping[str, CpuSet], whole: CpuSet) -> Iterator[Wanted]:
    if not guests:
        return
    unbound = context.snapshot.topology.kernel.unbound
    remaining = (unbound | context.allocatable.partitioned) - union(scopes.values())
    if unbound and remaining:
        yield Wanted(WORK, remaining, "unbound kernel work leaves the isolated CPUs", remaining)
    why = "reserves the guests' CPUs: other processes of the host cannot use them"
    yield Wanted(cgroup_target(guests[0].cgroups[0].path), whole, why, PartitionState("root", whole))
    for guest in guests:
        cpus = scopes[guest.uuid]
        why = f"no load balancing on the CPUs of guest {guest.name}"
        yield Wanted(cgroup_target(guest.cgroups[1].path), cpus, why, PartitionState("isolated", cpus))
