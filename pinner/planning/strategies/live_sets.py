"""The sets and CPUs of the live form of isolated (docs/strategies.md): an automatic emulator set follows the number of
guests, down to the minimum of cores of each node."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from pinner.model.change import TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Roles, Wanted
from pinner.model.plan.request import AUTO
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.cpu_allocator import Allocation, allocate
from pinner.planning.strategies.allocator.free_cpus import GuestAllocation
from pinner.planning.strategies.allocator.improvement import improved
from pinner.planning.strategies.single_moves import SingleMoves
from pinner.planning.strategies.strategy import beside, pin, place_emulator, place_host_processes


def allocated(
    context: Context, resolved: Resolved, roles: Roles, moves: SingleMoves
) -> tuple[Roles, Allocation, dict[str, CpuSet]]:
    """The sets by need, the vCPUs' CPUs, and that of QEMU's own threads by UUID, unless no CPU is left for a guest."""
    auto = context.request.emulator == AUTO
    if auto:
        roles = _as_pinned(context, roles)
    allocation = allocate(context, roles.vcpu)
    if auto and allocation.unplaced and (spare := _spare(context, roles)):
        wider = replace(roles, emulator=roles.emulator - spare, vcpu=roles.vcpu | spare)
        again = allocate(context, wider.vcpu)
        if len(again.unplaced) < len(allocation.unplaced):
            roles, allocation = wider, again

    def of(guest: Guest, place: GuestAllocation) -> Iterator[Wanted]:
        """Where the emulators' own CPUs will be is no matter: no vCPU runs there."""
        yield from place_emulator(guest, roles.emulator, roles)
        yield from pin(guest, place.cpus, "")

    if auto and context.request.smt != "prefer":
        roles = _with_whole_cores(context, resolved, roles)
        allocation = allocate(context, roles.vcpu)
    host = list(place_host_processes(context, roles))
    allocation = improved(context, allocation, roles.vcpu, moves, host, of)
    emulators = _emulators(context, resolved, roles, allocation)
    grown = roles.vcpu & union(emulators.values())
    return replace(roles, emulator=roles.emulator | grown, vcpu=roles.vcpu - grown), allocation, emulators


def _as_pinned(context: Context, roles: Roles) -> Roles:
    if context.request.rebalance:
        return roles
    ones, movable = _pinned(context), _for_vcpus(context, roles)
    whole = _whole_cores(context, ones)
    ones = (ones | whole) & movable
    own = union(_own(context, guest) for guest in context.guests) & roles.vcpu - whole
    return replace(roles, emulator=(roles.emulator - ones) | own, vcpu=(roles.vcpu | ones) - own)


def _pinned(context: Context) -> CpuSet:
    masks = (context.recorded(guest) or context.current(guest) for guest in context.guests)
    return union(mask for of_guest in masks for mask in of_guest.values() if len(mask) == 1)


def _whole_cores(context: Context, vcpus: CpuSet) -> CpuSet:
    """Those of vCPUs on these CPUs, of which no emulator gets a part: with smt ``require`` and ``isolate`` the rest of
    the core would be no CPU for vCPUs any more."""
    if context.request.smt == "prefer":
        return CpuSet()
    return union(context.allocatable.cores[cpu] for cpu in vcpus & context.allocatable.online)


def _with_whole_cores(context: Context, resolved: Resolved, roles: Roles) -> Roles:
    """The emulator set with as few more cores as leave no placed guest without a CPU of it."""

    def wider(count: int) -> Roles:
        more = union(cores[:count])
        return replace(roles, emulator=roles.emulator | more, vcpu=roles.vcpu - more)

    def suffices(count: int) -> bool:
        trial = wider(count)
        allocation = allocate(context, trial.vcpu)
        return len(_emulators(context, resolved, trial, allocation)) == len(allocation.places)

    cores = list(_in_turn(context, roles.vcpu - _whole_cores(context, _pinned(context))))
    return roles if suffices(0) else wider(bisect_left(range(len(cores)), True, key=suffices))


def _free(context: Context, roles: Roles, allocation: Allocation) -> CpuSet:
    used = union(CpuSet.of(place.cpus.values()) for place in allocation.places.values())
    return roles.vcpu - used - _whole_cores(context, used)


def _for_vcpus(context: Context, roles: Roles) -> CpuSet:
    return context.allocatable.for_vcpus(roles.emulator - roles.housekeeping)


def _own(context: Context, guest: Guest) -> CpuSet:
    recorded = context.places.get(TargetKey("emulator", guest.uuid, None), CpuSet())
    if recorded or context.request.rebalance:
        return recorded if len(recorded) == 1 else CpuSet()
    return union(thread.affinity for thread in guest.emulator.threads if len(thread.affinity) == 1)


def _spare(context: Context, roles: Roles) -> CpuSet:
    """CPUs that no guest needs, the same number of each node as far as possible."""
    free = roles.emulator - roles.housekeeping
    needed = union(_own(context, guest) for guest in context.guests)
    count, spare = len(free) - len(context.guests), CpuSet()
    for core in _in_turn(context, free):
        if len(core) <= count and not core & needed and core <= _for_vcpus(context, roles):
            spare, count = spare | core, count - len(core)
    return spare


def _in_turn(context: Context, free: CpuSet) -> Iterator[CpuSet]:
    """The highest first, without the minimum of each node."""
    least = context.allocatable.minimum_cores
    by_node = (
        [*reversed(context.allocatable.cores_within(free & cpus)[least:])]
        for cpus in context.allocatable.nodes.values()
    )
    for cores in zip_longest(*by_node):
        yield from (core for core in cores if core)


def _emulators(context: Context, resolved: Resolved, roles: Roles, allocation: Allocation) -> dict[str, CpuSet]:
    """The recorded or current CPU, if it is free, else one of the set on the guest's node, else any of the set, else
    for an automatic set one that no vCPU has. A bound guest gets only a CPU of its nodes. Where a guest gets none,
    restricted ones choose first, and others get CPUs of a definition last."""
    inside = union(context.allocatable.definitions)
    chosen = _chosen(context, resolved, roles, allocation, CpuSet())
    if not inside or len(chosen) == len(allocation.places):
        return chosen
    return max(chosen, _chosen(context, resolved, roles, allocation, inside), key=len)


def _chosen(
    context: Context, resolved: Resolved, roles: Roles, allocation: Allocation, inside: CpuSet
) -> dict[str, CpuSet]:
    """``inside``: CPUs of definitions to which restricted guests come first."""
    unused = _free(context, roles, allocation)
    # On a small node or in a small cgroup both sets share CPUs.
    free = roles.emulator - roles.housekeeping - (roles.vcpu - unused)
    extra = unused if context.request.emulator == AUTO else CpuSet()
    guests = [guest for guest in context.guests if guest.uuid in allocation.places]
    chosen: dict[str, CpuSet] = {}
    for guest in guests:
        if own := context.near(guest, _own(context, guest) & (free | extra)):
            chosen[guest.uuid] = CpuSet.of([min(own)])
            free, extra = free - own, extra - own
    for guest in sorted(guests, key=lambda guest: not (guest.restriction and inside)):
        if guest.uuid in chosen:
            continue
        nodes = allocation.places[guest.uuid].nodes
        possible = context.near(guest, free)
        possible = possible if guest.restriction else possible - inside or possible
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
