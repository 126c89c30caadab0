"""The live form of ``isolated``: the unit of every guest becomes an isolated cgroup v2 partition.

The parent of a partition must be one too, and partitions share no CPU (admin-guide/cgroup-v2.rst). So the guests' slice
becomes a partition. In it each guest's scope has one CPU more for QEMU's own threads, which cannot run outside: with
one CPU, the kernel need not balance them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.kinds import PartitionState
from pinner.model.plan.plan import LeftOut, Wanted
from pinner.planning.available import isolation
from pinner.planning.available.partitions import WORK, cgroup_target
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context
from pinner.planning.strategies import emulator_need
from pinner.planning.strategies.allocator.free_cpus import GuestAllocation
from pinner.planning.strategies.common import pin, place_emulator, place_host_processes, why_here
from pinner.planning.strategies.strategy import Answer

_UNIT_DEPTH = 2
"""The slice, and the scope in that."""
_NOTE = (
    "Live until the next boot or until the guest stops: load balancing and unbound kernel work leave the CPUs. Their "
    "tick (nohz_full), RCU callbacks (rcu_nocbs) and managed interrupts stay."
)


def place(context: Context, resolved: Resolved) -> Answer:
    """Blocked where the kernel has no partitions."""
    roles = replace(resolved.roles, vcpu=resolved.roles.vcpu - context.allocatable.exclusive)
    kernel, slice_ = context.snapshot.topology.kernel, _slice(context)
    fit, unplaced = _divided(context, slice_) if kernel.partitions else (context, [])
    roles, allocation, emulators = emulator_need.allocated(fit, resolved, roles)
    unplaced += (*allocation.unplaced, *_without_emulator_cpu(fit, allocation.places, emulators))
    whole = (
        context.allocatable.online - context.allocatable.isolated - roles.housekeeping - context.allocatable.restricted
    )
    scopes = {uuid: cpus | CpuSet.of(allocation.places[uuid].cpus.values()) for uuid, cpus in emulators.items()}
    if kernel.partitions:
        unplaced += _without_rest(fit, scopes, whole)
    left_out = {left.target for left in unplaced}
    guests = [guest for guest in fit.guests if guest.target not in left_out]
    scopes = {guest.uuid: scopes[guest.uuid] for guest in guests}
    wanted = list(place_host_processes(context, roles))
    for guest in guests:
        where = allocation.places[guest.uuid]
        why = f"an isolated CPU of its own; {why_here(context, guest, where.nodes)}"
        wanted += (*place_emulator(guest, emulators[guest.uuid]), *pin(guest, where.cpus, why))
    if kernel.partitions:
        wanted += _partitions(context, guests, scopes, whole)
    needs = isolation.describe(kernel, union(scopes.values()), context.snapshot.topology.isolated)
    return Answer(
        roles,
        tuple(wanted),
        tuple(unplaced),
        resolved.warnings,
        replace(needs, partition=(), partition_note=_NOTE) if kernel.partitions else needs,
        "" if kernel.partitions else isolation.no_partitions(kernel),
        allocation.optimality,
    )


def _slice(context: Context) -> str:
    """One only: partitions of two slices cannot share CPUs."""
    slices = Counter(guest.cgroups[0] for guest in context.guests if len(guest.cgroups) == _UNIT_DEPTH)
    found = min(slices, key=lambda each: (each.state.kind == "member", -slices[each], each.path), default=None)
    return found.path if found else ""


def _divided(context: Context, slice_: str) -> tuple[Context, list[LeftOut]]:
    unplaced = []
    for guest in context.guests:
        if len(guest.cgroups) != _UNIT_DEPTH:
            why = "it is not in a systemd scope of a slice with the cpuset controller of cgroup v2"
            unplaced.append(LeftOut(guest.target, why))
        elif guest.cgroups[0].path != slice_:
            here = guest.cgroups[0].path
            why = f"it is in {here}, the other guests' partitions are in {slice_}: two slices cannot share CPUs"
            unplaced.append(LeftOut(guest.target, why))
    others = {left.target for left in unplaced}
    return replace(context, guests=tuple(g for g in context.guests if g.target not in others)), unplaced


def _without_rest(context: Context, scopes: Mapping[str, CpuSet], whole: CpuSet) -> list[LeftOut]:
    """Where the partitions would take all CPUs of the slice: one without a partition, if there is one, and of these the
    smallest."""
    if not scopes or whole - union(scopes.values()):
        return []
    guests = [guest for guest in context.guests if guest.uuid in scopes]
    last = max(enumerate(guests), key=lambda each: (each[1].cgroups[1].state.kind == "member", each[0]))[1]
    why = (
        f"its partition would take CPUs {scopes[last.uuid]}, the last ones outside the guests' partitions: no other "
        "guest could start"
    )
    return [LeftOut(last.target, why)]


def _without_emulator_cpu(
    context: Context, places: Mapping[str, GuestAllocation], emulators: Mapping[str, CpuSet]
) -> Iterator[LeftOut]:
    for guest in context.guests:
        if guest.uuid in places and guest.uuid not in emulators:
            why = (
                f"its emulator threads need a CPU of the emulator set for themselves, and all {len(emulators)} are in "
                "use; 1 more CPU would make room: ask for a larger emulator set"
            )
            yield LeftOut(guest.target, why)


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
