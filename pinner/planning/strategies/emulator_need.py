"""The CPUs of QEMU's own threads in live partitions: one for each guest, so an automatic emulator set follows the
number of guests."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from pinner.model.change import TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Roles
from pinner.model.plan.request import AUTO
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.cpu_allocator import Allocation, allocate
from pinner.planning.strategies.common import beside


def allocated(context: Context, resolved: Resolved, roles: Roles) -> tuple[Roles, Allocation, dict[str, CpuSet]]:
    """The sets by need, the CPUs of vCPUs, and that of QEMU's own threads by UUID. Guests for which no CPU is left have
    none."""
    auto = context.request.emulator == AUTO
    if auto:
        roles = _as_pinned(context, roles)
    allocation = allocate(context, roles.vcpu)
    if auto and allocation.unplaced and (spare := _spare(context, roles)):
        wider = replace(roles, emulator=roles.emulator - spare, vcpu=roles.vcpu | spare)
        again = allocate(context, wider.vcpu)
        if len(again.unplaced) < len(allocation.unplaced):
            roles, allocation = wider, again
    left = roles.vcpu - union(CpuSet.of(place.cpus.values()) for place in allocation.places.values())
    emulators = _emulators(context, resolved, roles, allocation, left if auto else CpuSet())
    grown = roles.vcpu & union(emulators.values())
    return replace(roles, emulator=roles.emulator | grown, vcpu=roles.vcpu - grown), allocation, emulators


def _as_pinned(context: Context, roles: Roles) -> Roles:
    if context.request.rebalance:
        return roles
    movable = _for_vcpus(context, roles)
    masks = (context.recorded(guest) or context.current(guest) for guest in context.guests)
    ones = union(mask for found in masks for mask in found.values() if len(mask) == 1) & movable
    if context.request.smt == "isolate":
        ones = union(context.allocatable.cores[cpu] for cpu in ones) & movable
    own = union(_own(context, guest) for guest in context.guests)
    return replace(
        roles, emulator=(roles.emulator - ones) | (own & roles.vcpu), vcpu=(roles.vcpu | ones) - (own & roles.vcpu)
    )


def _for_vcpus(context: Context, roles: Roles) -> CpuSet:
    return context.allocatable.nova.for_vcpus(roles.emulator - roles.housekeeping)


def _own(context: Context, guest: Guest) -> CpuSet:
    """If it is one CPU."""
    recorded = context.places.get(TargetKey("emulator", guest.uuid, None), CpuSet())
    if recorded or context.request.rebalance:
        return recorded if len(recorded) == 1 else CpuSet()
    return union(thread.affinity for thread in guest.emulator.threads if len(thread.affinity) == 1)


def _spare(context: Context, roles: Roles) -> CpuSet:
    """That no guest needs, the same number of each node as far as possible."""
    free = roles.emulator - roles.housekeeping
    needed = union(_own(context, guest) for guest in context.guests)
    count, found = len(free) - len(context.guests), CpuSet()
    for core in _in_turn(context, free):
        if len(core) <= count and not core & needed and core <= _for_vcpus(context, roles):
            found, count = found | core, count - len(core)
    return found


def _in_turn(context: Context, free: CpuSet) -> Iterator[CpuSet]:
    """The highest first, without the minimum of each node."""
    least = context.allocatable.minimum_cores
    by_node = (
        [*reversed(context.allocatable.cores_within(free & cpus)[least:])]
        for cpus in context.allocatable.nodes.values()
    )
    for cores in zip_longest(*by_node):
        yield from (core for core in cores if core)


def _emulators(
    context: Context, resolved: Resolved, roles: Roles, allocation: Allocation, extra: CpuSet
) -> dict[str, CpuSet]:
    """The recorded or the current CPU, if it is free, else one of the set on the guest's node, else any of the set,
    else one of ``extra``, which are free CPUs for vCPUs. A bound guest gets only a CPU of its nodes."""
    free = roles.emulator - roles.housekeeping
    guests = [guest for guest in context.guests if guest.uuid in allocation.places]
    chosen: dict[str, CpuSet] = {}
    for guest in guests:
        if own := context.near(guest, _own(context, guest) & (free | extra)):
            chosen[guest.uuid] = CpuSet.of([min(own)])
            free, extra = free - own, extra - own
    for guest in guests:
        if guest.uuid in chosen:
            continue
        nodes = allocation.places[guest.uuid].nodes
        possible = context.near(guest, free)
        if near := beside(context, resolved, guest, nodes) & possible or possible:
            chosen[guest.uuid] = CpuSet.of([min(near)])
        elif possible := context.near(guest, extra):
            home = union(context.allocatable.nodes[node] for node in nodes)
            chosen[guest.uuid] = CpuSet.of([_of_begun_core(context, home & possible or possible)])
        free, extra = free - chosen.get(guest.uuid, CpuSet()), extra - chosen.get(guest.uuid, CpuSet())
    return chosen


def _of_begun_core(context: Context, cpus: CpuSet) -> int:
    cores: Mapping[int, CpuSet] = context.allocatable.cores
    return min(cpus, key=lambda cpu: (cores[cpu] <= cpus, cpu))
