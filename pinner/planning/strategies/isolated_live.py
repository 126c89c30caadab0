"""The live form of ``isolated``: every guest's unit becomes an isolated cgroup v2 partition.

A partition's parent must be one, and partitions share no CPU (Documentation/admin-guide/cgroup-v2.rst). So the slice of
the guests becomes a partition that holds all but housekeeping, and each guest's scope one in it, with a CPU for each
vCPU and one for QEMU's own threads, which cannot run elsewhere: there the kernel need not balance either.
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
"""A slice and the guest's scope in it."""
_NOTE = (
    "Live until the next boot or the guest's end: load balancing and unbound work leave the CPUs; their tick "
    "(nohz_full), RCU callbacks (rcu_nocbs) and managed interrupts stay."
)


def place(context: Context, resolved: Resolved) -> Answer:
    """The placement one to one and the partitions around it; blocked where this host cannot have them."""
    roles = replace(resolved.roles, vcpu=resolved.roles.vcpu - context.allocatable.exclusive)
    allocation = allocate(context, roles.vcpu)
    hosts = _emulators(context, resolved, allocation.places)
    guests = [guest for guest in context.guests if guest.uuid in hosts]
    scopes = {
        guest.uuid: hosts[guest.uuid] | CpuSet.of(allocation.places[guest.uuid].cpus.values()) for guest in guests
    }
    whole = (
        context.allocatable.online - context.allocatable.isolated - roles.housekeeping - context.allocatable.restricted
    )
    wanted = list(place_host_processes(context, roles))
    for guest in guests:
        where = allocation.places[guest.uuid]
        why = f"an isolated CPU of its own; {node_choice.reason(context.snapshot, guest, where.node)}"
        wanted += (*place_emulator(guest, hosts[guest.uuid]), *pin(guest, where.cpus, why))
    taken = union(scopes.values())
    blocked = _obstacle(context, guests, whole - taken)
    if not blocked:
        wanted += _partitions(context, guests, scopes, whole)
    needs = isolation.describe(context.snapshot.topology.kernel, taken, context.snapshot.topology.isolated)
    return Answer(
        roles,
        tuple(wanted),
        (*allocation.unplaced, *_homeless(context, allocation.places, hosts)),
        resolved.warnings,
        replace(needs, partition=(), partition_note=_NOTE) if context.snapshot.topology.kernel.partitions else needs,
        blocked,
    )


def _emulators(context: Context, resolved: Resolved, places: Mapping[str, GuestAllocation]) -> dict[str, CpuSet]:
    """A CPU for each seated guest's own threads: the one that stands, else the one that they are on where that may be,
    else one of its node, else any. Who gets none is left out."""
    free = resolved.roles.emulator - resolved.roles.housekeeping
    allocated = [guest for guest in context.guests if guest.uuid in places]
    given: dict[str, CpuSet] = {}
    for choice in (_recorded, _current, None):
        for guest in allocated:
            near = resolved.emulator_on.get(places[guest.uuid].node, free) & free or free
            if choice is not None:
                near = free & choice(context, guest)
            if near and guest.uuid not in given:
                given[guest.uuid] = CpuSet.of([min(near)])
                free = free - given[guest.uuid]
    return given


def _recorded(context: Context, guest: Guest) -> CpuSet:
    return context.places.get(("emulator", guest.uuid, None), CpuSet())


def _current(context: Context, guest: Guest) -> CpuSet:
    if context.request.rebalance:
        return CpuSet()
    return union(thread.affinity for thread in guest.emulator.threads if len(thread.affinity) == 1)


def _homeless(
    context: Context, places: Mapping[str, GuestAllocation], hosts: Mapping[str, CpuSet]
) -> Iterator[LeftOut]:
    for guest in context.guests:
        if guest.uuid in places and guest.uuid not in hosts:
            why = f"its own threads need a CPU of the emulator set for themselves, and all {len(hosts)} are given away"
            yield LeftOut(guest_target(guest), why)


def _obstacle(context: Context, guests: list[Guest], left: CpuSet) -> str:
    """Why there can be no partitions; empty: there can."""
    kernel = context.snapshot.topology.kernel
    parents = {guest.cgroups[0].path for guest in guests if len(guest.cgroups) == _UNIT_DEPTH}
    misplaced = [guest.name for guest in guests if len(guest.cgroups) != _UNIT_DEPTH]
    if not kernel.partitions:
        return isolation.no_partitions(kernel)
    if misplaced:
        return f"guests {', '.join(misplaced)} are not in a scope of a slice with the cpuset controller"
    if len(parents) > 1:
        return f"the guests are in different slices ({', '.join(sorted(parents))}), which can share no CPU"
    if guests and not left:
        return "no CPU would be left for guests that are not in a partition: none could be started any more"
    return ""


def _partitions(context: Context, guests: list[Guest], scopes: Mapping[str, CpuSet], whole: CpuSet) -> Iterator[Wanted]:
    if not guests:
        return
    unbound = context.snapshot.topology.kernel.unbound
    kept = (unbound | context.allocatable.partitioned) - union(scopes.values())
    if unbound and kept:
        yield Wanted(WORK, kept, "unbound kernel work leaves the isolated CPUs", kept)
    why = "takes the guests' CPUs from all else on the host"
    yield Wanted(cgroup_target(guests[0].cgroups[0].path), whole, why, PartitionState("root", whole))
    for guest in guests:
        cpus = scopes[guest.uuid]
        why = f"no load balancing on the CPUs of guest {guest.name}"
        yield Wanted(cgroup_target(guest.cgroups[1].path), cpus, why, PartitionState("isolated", cpus))
