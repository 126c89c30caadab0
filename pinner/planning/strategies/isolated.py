"""Each vCPU on its own isolated CPU, all of a guest on one NUMA node: isolated by the boot's parameters, or live.

The live form (docs/strategies.md) makes every guest's unit an isolated cgroup v2 partition. A partition's parent must
be one, too, and partitions share no CPU (admin-guide/cgroup-v2.rst). Each guest's scope has one CPU more for QEMU's own
threads, which cannot run outside: with one CPU, the kernel need not balance them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Isolation, LeftOut, Roles, Wanted
from pinner.model.plan.request import ISOLATED
from pinner.model.snapshot import WORK, cgroup_target
from pinner.model.states import PartitionState
from pinner.planning.available import isolation
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context
from pinner.planning.strategies import rules
from pinner.planning.strategies.allocator.cpu_allocator import Allocation, allocate
from pinner.planning.strategies.allocator.free_cpus import GuestAllocation, is_pinned
from pinner.planning.strategies.allocator.improvement import improved
from pinner.planning.strategies.live_sets import allocated
from pinner.planning.strategies.single_moves import SingleMoves
from pinner.planning.strategies.strategy import (
    COMMON,
    Answer,
    Strategy,
    beside,
    divided,
    pin,
    place_emulator,
    place_host_processes,
    why_here,
)


class Isolated:
    name: ClassVar[str] = ISOLATED
    summary: ClassVar[str] = (
        "Each vCPU gets a CPU of its own that is isolated from the kernel's scheduler, all of a guest on one NUMA node."
    )
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "smt", "isolation")
    pursues: ClassVar[tuple[str, ...]] = ("extra_nodes", "remote_memory", "remote_devices", "shared_cores", "extra_l3")

    def place(self, context: Context) -> Answer:
        """Where this boot isolates no CPU, the answer says how to. Raises Invalid, NoFit (see roles.resolve)."""
        resolved = context.resolve(isolating=True)
        context, left_out = divided(context, resolved.roles, apart=True)
        answer = place(context, resolved)
        return replace(answer, unplaced=(*left_out, *answer.unplaced))


def place(context: Context, resolved: Resolved) -> Answer:
    free = context.allocatable.unbalanced
    allocation = allocate(context, free)
    lacking = resolved.roles.vcpu - free
    if lacking and context.request.isolation == "live" and (allocation.unplaced or not free):
        live = _settled(context, resolved)
        if not free or (not live.blocked and len(live.unplaced) < len(allocation.unplaced)):
            return live
    if lacking and not free:
        return _not_isolated(context, resolved)
    return _placed(context, resolved, allocation)


def _isolable(context: Context, resolved: Resolved) -> CpuSet:
    """The CPUs that vCPUs could have after a reboot."""
    return isolation.for_boot(context.snapshot, resolved.roles.vcpu) | context.allocatable.unbalanced


def _placed(context: Context, resolved: Resolved, allocation: Allocation) -> Answer:
    free, topology = context.allocatable.unbalanced, context.snapshot.topology
    roles = replace(resolved.roles, vcpu=free)
    allocation, wanted = placed_one_to_one(
        context, resolved, roles, allocation, Isolated(), "an isolated CPU of its own"
    )
    unplaced = _with_remedy(context, resolved, allocation.unplaced)
    # More isolated CPUs are worth a reboot only if another guest then fits.
    goal = free if unplaced == allocation.unplaced else _isolable(context, resolved)
    if not allocation.places and goal == free:
        goal = CpuSet()
    return Answer(
        roles,
        wanted,
        unplaced,
        (*resolved.warnings, *isolation.lacking(topology, free)),
        isolation.describe(context.snapshot, goal, free),
        optimality=allocation.optimality,
    )


def placed_one_to_one(
    context: Context, resolved: Resolved, roles: Roles, allocation: Allocation, strategy: Strategy, why: str
) -> tuple[Allocation, tuple[Wanted, ...]]:
    """The allocation after moves of single guests, with host processes and QEMU's own threads beside the vCPUs."""
    wanted = list(place_host_processes(context, roles))

    def of(guest: Guest, place: GuestAllocation) -> Iterator[Wanted]:
        here = beside(context, resolved, guest, place.nodes)
        yield from place_emulator(guest, here, context.with_hosts_vcpus(roles))
        yield from pin(guest, place.cpus, f"{why}; {why_here(context, guest, place.nodes)}")

    allocation = improved(context, allocation, roles.vcpu, SingleMoves.of(context, strategy), wanted, of)
    for guest in context.guests:
        if place := allocation.places.get(guest.uuid):
            wanted += of(guest, place)
    return allocation, tuple(wanted)


def _not_isolated(context: Context, resolved: Resolved) -> Answer:
    wanted = _isolable(context, resolved)
    never_fit = {left.target: left for left in allocate(context, wanted).unplaced}
    is_useful = len(never_fit) < len(context.guests)
    needs = isolation.describe(context.snapshot, wanted, CpuSet()) if is_useful else None
    unplaced = (
        never_fit.get(
            guest.target,
            LeftOut(
                guest.target,
                f"its {len(guest.plugged)} vCPUs need isolated CPUs on one node; {_remedy(context, resolved)}",
            ),
        )
        for guest in context.guests
    )
    return Answer(
        resolved.roles,
        tuple(place_host_processes(context, resolved.roles)),
        tuple(unplaced),
        resolved.warnings,
        needs,
        blocked=_how_to_isolate(needs) if needs else _why_none(context, wanted),
    )


def _how_to_isolate(needs: Isolation) -> str:
    live = ", or make the live cgroup partition" if needs.partition else ""
    return f"CPUs {needs.wanted} are not isolated: reboot with {needs.kernel_arguments}{live}"


def _why_none(context: Context, wanted: CpuSet) -> str:
    if not wanted:
        why = f"none can be: floating guests need Nova's cpu_shared_set ({context.snapshot.shared}) balanced"
    elif context.guests:
        why = f"no guest fits those that could be ({wanted})"
    else:
        why = f"no guest needs one; a plan with a guest says how to isolate CPUs {wanted}"
    return f"no CPU is isolated for vCPUs, and {why}"


def _with_remedy(context: Context, resolved: Resolved, unplaced: tuple[LeftOut, ...]) -> tuple[LeftOut, ...]:
    wanted = _isolable(context, resolved)
    if not unplaced or wanted <= context.allocatable.unbalanced:
        return unplaced
    never_fit = {left.target for left in allocate(context, wanted).unplaced}
    return tuple(
        left if left.target in never_fit else replace(left, why=f"{left.why}; {_remedy(context, resolved)}")
        for left in unplaced
    )


def _remedy(context: Context, resolved: Resolved) -> str:
    wanted = _isolable(context, resolved)
    return f"this boot isolates {len(context.allocatable.unbalanced)} of the {len(wanted)} CPUs wanted ({wanted})"


_UNIT_DEPTH = 2
"""The slice, and the scope in that."""
_NOTE = (
    "Live until the next boot or until the guest stops: load balancing and unbound kernel work leave the CPUs. Their "
    "tick (nohz_full), RCU callbacks (rcu_nocbs) and managed interrupts stay."
)


def _settled(context: Context, resolved: Resolved) -> Answer:
    """The emulators' CPUs, and those that guests without a partition keep, are chosen after those of vCPUs. Beside them
    another guest may have room: the next plan would find it."""
    live = min(_live_answers(context, resolved), key=_count)
    # Guests that have moved once do not move again in the same plan.
    stay = any(is_pinned(guest, context.recorded(guest) or context.current(guest)) for guest in context.guests)
    request = replace(context.request, moves=0) if stay else context.request
    while live.unplaced and not live.blocked:
        places = {want.target.key: want.cpus for want in live.wanted if want.state is None}
        beside = replace(context, request=request, places={**context.places, **places})
        again = min(_live_answers(beside, resolved), key=_count)
        if again.blocked or len(again.unplaced) >= len(live.unplaced):
            break
        live = again
    return live


def _count(answer: Answer) -> int:
    return len(answer.unplaced)


def _live_answers(context: Context, resolved: Resolved) -> Iterator[Answer]:
    """Blocked where the slice can be no partition. Bounds and pins of guests without a partition keep CPUs: where the
    others' would take all, these are not touched, or keep one."""
    blocked = _why_no_partition(context, _slice(context))
    for kept in (union, _one_each):
        answer, masks = _with_partitions(context, resolved, CpuSet(), blocked), set[CpuSet]()
        while without := [*rules.without_cpus(answer.wanted, context)]:
            if lost := next((each for each in without if not each.inside), None):
                answer = _with_partitions(context, resolved, CpuSet(), str(lost))
            else:
                masks |= {each.inside for each in without}
                answer = _with_partitions(context, resolved, kept(masks))
        yield answer
        if not masks:
            return


def _one_each(masks: Iterable[CpuSet]) -> CpuSet:
    return CpuSet.of(map(max, masks))


class _Trial(NamedTuple):
    context: Context
    roles: Roles
    allocation: Allocation
    emulators: Mapping[str, CpuSet]
    lacking: tuple[LeftOut, ...]
    """Guests with CPUs for their vCPUs alone, and the one whose partition would take the last CPUs."""

    @classmethod
    def of(cls, context: Context, resolved: Resolved, roles: Roles, whole: CpuSet) -> "_Trial":
        moves = SingleMoves.of(context, Isolated())
        trial = cls(context, *allocated(context, resolved, roles, moves), ())
        without = _without_emulator_cpu(context, trial.allocation.places, trial.emulators)
        return trial._replace(lacking=(*without, *_without_rest(context, trial.scopes, whole)))

    @property
    def scopes(self) -> dict[str, CpuSet]:
        places = self.allocation.places
        return {uuid: cpus | CpuSet.of(places[uuid].cpus.values()) for uuid, cpus in self.emulators.items()}

    def settled(self, resolved: Resolved, roles: Roles, whole: CpuSet) -> tuple["_Trial", list[LeftOut]]:
        """With the guests left out. None moves for one that gets no partition."""
        trial, left_out = self, [*self.lacking]
        while trial.lacking:
            again = _Trial.of(_without(trial.context, trial.lacking), resolved, roles, whole)
            if again._served < trial._served:
                break
            trial = again
            left_out += trial.lacking
        return trial, [*trial.allocation.unplaced, *left_out]

    @property
    def _served(self) -> int:
        return len(self.allocation.places) - len(self.lacking)


def _with_partitions(context: Context, resolved: Resolved, kept: CpuSet, blocked: str = "") -> Answer:
    """No scope gets ``kept``."""
    roles, slice_ = replace(resolved.roles, vcpu=resolved.roles.vcpu - context.allocatable.unbalanced), _slice(context)
    fit, unplaced = (context, []) if blocked else _divided(context, slice_)
    whole = context.allocatable.for_guests(
        context.allocatable.online - context.allocatable.isolated - roles.housekeeping - context.allocatable.restricted
    )
    free = replace(roles, emulator=roles.emulator - kept, vcpu=roles.vcpu - kept)
    trial, left_out = _Trial.of(fit, resolved, free, whole).settled(resolved, free, whole)
    free, allocation, emulators = trial.roles, trial.allocation, trial.emulators
    roles = replace(free, emulator=free.emulator | (roles.emulator & kept), vcpu=free.vcpu | (roles.vcpu & kept))
    why = f"; CPUs {kept} are left to guests without a partition" if kept else ""
    unplaced += (replace(left, why=f"{left.why}{why}") for left in left_out)
    others = {left.target for left in unplaced}
    guests = [guest for guest in trial.context.guests if guest.target not in others]
    scopes = {guest.uuid: trial.scopes[guest.uuid] for guest in guests}
    wanted = list(place_host_processes(context, roles))
    for guest in guests:
        where = allocation.places[guest.uuid]
        why = f"an isolated CPU of its own; {why_here(context, guest, where.nodes)}"
        wanted += (*place_emulator(guest, emulators[guest.uuid], roles), *pin(guest, where.cpus, why))
    if not blocked:
        wanted += _partitions(context, guests, scopes, whole | context.own_within(slice_))
    needs = isolation.describe(context.snapshot, union(scopes.values()), context.snapshot.topology.isolated)
    return Answer(
        roles,
        tuple(wanted),
        tuple(unplaced),
        resolved.warnings,
        needs if blocked or needs is None else replace(needs, partition=(), partition_note=_NOTE),
        blocked,
        allocation.optimality,
    )


def _slice(context: Context) -> str:
    """Only one: partitions of two slices cannot share CPUs."""
    slices = Counter(guest.cgroups[0] for guest in context.guests if len(guest.cgroups) == _UNIT_DEPTH)
    slice_ = min(slices, key=lambda each: (each.state.kind == "member", -slices[each], each.path), default=None)
    return slice_.path if slice_ else ""


def _why_no_partition(context: Context, slice_: str) -> str:
    kernel = context.snapshot.topology.kernel
    if not kernel.partitions:
        return isolation.no_partitions(kernel)
    own, allocatable = context.own_within(slice_), context.allocatable
    # A partition root has no CPU that the boot isolates.
    if lost := own & allocatable.isolated:
        return f"guests in {slice_} own CPUs {lost}, which this boot isolates: a partition of {slice_} would take them"
    for each in allocatable.restrictions:
        if not each.guest and (lost := own & each.cpus):
            return f"guests in {slice_} own CPUs {lost}, which {each} uses: a partition of {slice_} would take them"
    return ""


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
    return _without(context, unplaced), unplaced


def _without(context: Context, unplaced: Iterable[LeftOut]) -> Context:
    others = {left.target for left in unplaced}
    return replace(context, guests=tuple(guest for guest in context.guests if guest.target not in others))


def _without_rest(context: Context, scopes: Mapping[str, CpuSet], whole: CpuSet) -> list[LeftOut]:
    """Where the partitions would take all CPUs of the slice: one guest, without a partition if there is one, and of
    these the smallest."""
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
