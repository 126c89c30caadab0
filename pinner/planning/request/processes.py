"""Which processes move or stay, to which CPUs owners have restricted some, and which of them are the recorded ones."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from math import fsum
from typing import Any

from pinner.model.change import Target, TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NotFound
from pinner.model.guest.guest import Guest
from pinner.model.kinds import KINDS
from pinner.model.machine.process import FULL_CPU, NOT_PERMITTED, Immovable, Process, Thread
from pinner.model.plan.plan import NO_ROLES, LeftOut, PlacedTarget, Placement, Roles
from pinner.model.plan.request import AUTO, ISOLATING, ONE_TO_ONE, Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.allocatable_cpus import (
    AllocatableCpus,
    Demand,
    RestrictedAffinity,
    qemus_own_load,
    qemus_own_threads,
)
from pinner.planning.available.allocation_order import AllocationOrder
from pinner.planning.available.exclusions import asked_for, is_excluded_process
from pinner.planning.available.numa import bound_of
from pinner.planning.available.restrictions import (
    definitions,
    hosts_slices,
    is_asked,
    keeping,
    limits,
    of_guests,
    of_ovs,
    reason_to_stay,
    restrictions,
)
from pinner.planning.available.roles import for_housekeeping, is_housekeeping_set, resolve

APART = "off the guests' CPUs"
"""Of a reason; the plan then says where that is not so."""


@dataclass(frozen=True, slots=True)
class Moving:
    target: Target
    threads: tuple[Thread, ...]
    reason: str


def allocatable_cpus(
    snapshot: Snapshot,
    request: Request,
    in_use: CpuSet = CpuSet(),
    *,
    hosts_own: CpuSet = CpuSet(),
    only_firm: bool = False,
) -> AllocatableCpus:
    """CPUs that a recorded placement has ``in_use`` stay allocatable: otherwise each use of taskset would move guests.
    So do its sets for housekeeping and emulators, ``hosts_own``, where an excluded guest is on one of their CPUs, but
    not where an operator's pin owns it. With ``only_firm``, affinities that depend on load keep no CPU.

    A mask does not count if it equals a housekeeping set that a plan without that mask can have: an administrator set
    it, for instance with a plan's shell commands. Its lowest CPU is the lowest free one without it, and no other
    restricted affinity has any of its CPUs.
    """
    restricted = restrictions(snapshot, request)
    of_processes = tuple(_outside(restricted.counting, in_use))
    least = snapshot.minimum_cores if request.minimum_cores is None else request.minimum_cores
    pinned = (*of_guests(snapshot, request, hosts_own), *of_ovs(snapshot))
    modes = {"isolating": request.strategy in ISOLATING, "apart": request.strategy in ONE_TO_ONE}
    base = AllocatableCpus.of(snapshot, pinned, _partitioned(snapshot, request), least, **modes)
    base = replace(
        base,
        idle=tuple(_outside(restricted.idle, in_use)),
        demand=_demand(snapshot, request),
        limits=limits(snapshot, request),
        definitions=definitions(snapshot, request),
        order=AllocationOrder.of(snapshot, request),
        slices=hosts_slices(snapshot),
    )
    any_order = bool(snapshot.shared or base.limits or base.slices) or not base.order.is_by_id
    mask = _by_hand(base, request, of_processes, any_order=any_order)
    kept = (each for each in of_processes if each.cpus != mask and (each.firm or not only_firm))
    return replace(keeping(base, kept), by_hand=mask)


def remedy_roles(snapshot: Snapshot) -> Roles:
    """The CPUs that the remedy of a finding may give to each role: those of a plan of this host without Nova's
    cpu_shared_set. No vCPU gets CPUs of the host, the host none of that set, and nobody those that a process keeps,
    even where that blocks a plan. Empty where there is no such plan."""
    request = Request()
    allocatable = allocatable_cpus(replace(snapshot, shared=CpuSet()), request)
    try:
        roles = resolve(allocatable, request).roles
    except (Invalid, NoFit):
        return NO_ROLES
    owned = union(each.cpus for each in allocatable.set_aside if each.firm)
    others, hosts = owned | snapshot.shared, roles.housekeeping | roles.emulator
    return Roles(roles.housekeeping - others, roles.emulator - others, roles.vcpu - hosts - owned)


def _by_hand(
    base: AllocatableCpus, request: Request, of_processes: tuple[RestrictedAffinity, ...], *, any_order: bool
) -> CpuSet:
    if not of_processes:
        return CpuSet()
    allocatable = keeping(base, of_processes)
    # Housekeeping takes CPUs of Nova's cpu_shared_set and fast cores last, so that the lowest CPU need not be first.
    any_order = any_order or bool(allocatable.set_aside)
    free = for_housekeeping(allocatable, request)
    # A process that polls its CPUs shares them with nobody.
    polled = {each.cpus for each in of_processes if each.firm and each.load >= FULL_CPU * len(each.cpus)}
    for mask in sorted({each.cpus for each in of_processes if not each.named} - polled, key=list):
        if request.housekeeping == AUTO and free and mask.lowest > free.lowest and not any_order:
            break
        trial = keeping(base, (restriction for restriction in of_processes if restriction.cpus != mask))
        # The CPUs of a guest that pinner does not place stay with that guest.
        if not trial.restricted & mask and is_housekeeping_set(trial, request, mask):
            return mask
    return CpuSet()


def _outside(affinities: Iterable[RestrictedAffinity], in_use: CpuSet) -> Iterator[RestrictedAffinity]:
    return (replace(each, cpus=each.cpus - in_use) for each in affinities if each.cpus - in_use)


def _demand(snapshot: Snapshot, request: Request) -> Demand:
    moves = [thread for move in moving(snapshot, request) for thread in move.threads if thread.load]
    guests = [guest for guest in snapshot.guests if not guest.dedicated or request.nova_emulators]
    return Demand(
        housekeeping=fsum(thread.load for thread in moves) / 100,
        emulator=fsum(qemus_own_load(snapshot, guests).values()),
        housekeeping_now=frozenset(thread.affinity for thread in moves),
        emulator_now=frozenset(
            (thread.affinity, _bound(guest, snapshot)) for guest in guests for thread in qemus_own_threads(guest)
        ),
    )


def _bound(guest: Guest, snapshot: Snapshot) -> CpuSet:
    bound = bound_of(guest, snapshot.topology)
    return snapshot.topology.online if bound is None or bound.nodes is None else bound.nodes


def moving(
    snapshot: Snapshot, request: Request, managed_processes: Container[tuple[int, int]] = ()
) -> Iterator[Moving]:
    """None is real-time: on shared CPUs, it would stop all other threads."""
    slices = hosts_slices(snapshot)
    for process in () if request.fix else snapshot.processes:
        requested, busy = is_asked(process, request), process.load > request.busy_threshold
        placed = moves_processes(request) and (busy or (process.pid, process.started) in managed_processes)
        if not (requested or placed) or is_excluded_process(process, request) or process.is_realtime:
            continue
        movable = _movable(requested)
        threads = tuple(thread for thread in process.threads if reason_to_stay(process, thread, slices) in movable)
        if threads:
            reason = f"was busy when pinner placed it: stays {APART}"
            if requested:
                reason = "asked for by name"
            elif busy:
                load = f"{process.load:.1f} % of one CPU, above {request.busy_threshold:g} %"
                reason = f"busy, {load}: moves {APART}"
            yield Moving(process_target(process), threads, reason)


def moves_processes(request: Request) -> bool:
    return not request.placement and (not request.guests or request.with_processes)


def require_asked(snapshot: Snapshot, request: Request) -> None:
    names = {process.name for process in snapshot.processes} | {str(process.pid) for process in snapshot.processes}
    for name in request.processes:
        if name not in names:
            raise NotFound("process", name)


def require_threshold(snapshot: Snapshot, request: Request) -> None:
    cpus = len(snapshot.topology.cpus)
    if request.busy_threshold > 100 * cpus:
        expected = f"a number of per cent of one CPU from 0 to {100 * cpus}: the host has {cpus} CPUs"
        raise Invalid("busy_threshold", request.busy_threshold, expected)


def staying(snapshot: Snapshot, request: Request) -> Iterator[LeftOut]:
    """Busy or requested processes that do not move, without guests' threads, and without those that a request for some
    guests does not ask for."""
    per_cpu, slices = [], hosts_slices(snapshot)
    for process in () if request.fix else snapshot.processes:
        requested = is_asked(process, request)
        if not (requested or (moves_processes(request) and process.load > request.busy_threshold)):
            continue
        if process.immovable_reason == "per-cpu" and not requested:
            per_cpu.append(process)
        elif is_excluded_process(process, request):
            yield LeftOut(
                process_target(process),
                f"{process.load:.1f} % of one CPU; the request excludes it (excluded_processes)",
            )
        elif process.immovable_reason == "guest":
            if requested:
                yield LeftOut(process_target(process), "it belongs to a guest and is placed with that guest")
        elif process.is_realtime and process.immovable_reason != "pinner":
            yield LeftOut(process_target(process), _why_realtime(process))
        else:
            yield from _immovable_threads(process, slices, asked=requested)
    if per_cpu:
        yield _busiest(per_cpu)


def process_target(process: Process) -> Target:
    return Target("process", str(process.pid), process.started, process.name)


def _busiest(per_cpu: list[Process]) -> LeftOut:
    busiest = max(per_cpu, key=lambda process: process.load)
    why = f"{busiest.load:.1f} % of one CPU; a per-CPU kernel thread cannot leave its CPU"
    if len(per_cpu) > 1:
        total = fsum(process.load for process in per_cpu)
        why += f"; it is the busiest of {len(per_cpu)} such threads, which together use {total:.1f} % of one CPU"
    return LeftOut(process_target(busiest), why)


def _immovable_threads(process: Process, slices: CpuSet, *, asked: bool) -> Iterator[LeftOut]:
    target = process_target(process)
    staying_threads: dict[tuple[Immovable, CpuSet], list[Thread]] = {}
    for thread in process.threads:
        immovable_reason = reason_to_stay(process, thread, slices)
        if immovable_reason not in _movable(asked):
            staying_threads.setdefault((immovable_reason, thread.affinity), []).append(thread)
    for (immovable_reason, mask), threads in staying_threads.items():
        load = fsum(thread.load for thread in threads)
        why = {
            "per-cpu": f"a kernel thread that cannot leave CPU {mask}",
            "pinner": "pinner itself",
            "restricted": _why_restricted(process, mask),
            "guest": "it belongs to a guest and is placed with that guest",
            "not-permitted": NOT_PERMITTED,
        }[immovable_reason]
        whole = immovable_reason == "pinner" or len(threads) == len(process.threads)
        tids = () if whole else tuple(thread.tid for thread in threads)
        yield LeftOut(target, f"{load:.1f} % of one CPU; {why}", tids)


def _why_restricted(process: Process, mask: CpuSet) -> str:
    if process.cpu_limits and process.cpu_limits[-1].cpus <= mask:
        return f"{process.cpu_limits[-1]} allows CPUs {mask}"
    return f"its owner restricted it to CPUs {mask}; to move it, name it in processes (--process)"


def _why_realtime(process: Process) -> str:
    threads = [thread for thread in process.threads if thread.realtime]
    policies = ", ".join(sorted({thread.realtime for thread in threads}))
    cpus = union(thread.affinity for thread in threads)
    return (
        f"{process.load:.1f} % of one CPU; it has real-time threads ({policies}), which would stop the other processes "
        f"on housekeeping's CPUs; they may use CPUs {cpus}"
    )


def _movable(asked: bool) -> tuple[Immovable, ...]:
    return ("", "restricted") if asked else ("",)


def still_named(placement: Placement, snapshot: Snapshot) -> Request | None:
    """Its request without the pids of processes that have ended, which others may have now. None where the placement
    was by hand, and names nothing else."""
    request, running = placement.request, {instance(process) for process in snapshot.processes}
    placed = {each.target for each in placement.placed if each.target.kind == "process"}
    ended = {target.owner for target in placed} - {target.owner for target in placed if target.key in running}
    if ended.isdisjoint(request.processes):
        return request
    if not request.placement:
        return replace(request, processes=tuple(name for name in request.processes if name not in ended))
    pins = tuple(pin for pin in request.placement if pin.kind != "process" or pin.owner not in ended)
    return replace(request, placement=pins, processes=()) if pins else None


Identity = tuple[str, str, str]


def without_own_masks(snapshot: Snapshot, placement: Placement) -> Snapshot:
    placements = {
        placed.target.key: frozenset(placed.threads) for placed in placement.placed if placed.target.kind == "process"
    }

    def ours(process: Process, thread: Thread) -> bool:
        known = placements.get(instance(process))
        return known is not None and (thread.started > placement.since or thread.key in known)

    def without_own(process: Process) -> Process:
        if instance(process) not in placements:
            return process
        threads = (
            replace(thread, immovable_reason="")
            if thread.immovable_reason == "restricted" and ours(process, thread)
            else thread
            for thread in process.threads
        )
        return replace(process, threads=tuple(threads))

    return replace(snapshot, processes=tuple(map(without_own, snapshot.processes)))


def managed_processes(snapshot: Snapshot, placement: Placement) -> frozenset[tuple[int, int]]:
    """By pid and start time: the placed ones, and those of the same unit and name that started later. They stay at any
    load."""
    placed = [each for each in placement.placed if each.target.kind == "process"]
    instances = {each.target.key for each in placed}
    running = {instance(process) for process in snapshot.processes}
    known = {identity_of(each) for each in placed}
    restarted = known - {identity_of(each) for each in placed if each.target.key in running}
    return frozenset(
        (process.pid, process.started)
        for process in snapshot.processes
        if instance(process) in instances
        or identity(process) in restarted
        or (identity(process) in known and process.started > placement.since)
    )


def pruned(snapshot: Snapshot, request: Request, placement: Placement | None) -> Snapshot:
    """Without what does not affect the plan, so small that every plan of a policy can store it. The youngest process
    stays: its start time dates the snapshot."""
    managed = managed_processes(snapshot, placement) if placement else frozenset()
    youngest = max(snapshot.processes, key=lambda process: process.started, default=None)

    def affects_plan(process: Process) -> bool:
        return (
            process is youngest
            or process.load > request.busy_threshold
            or (process.pid, process.started) in managed
            or asked_for(process, request)
            or any(thread.immovable_reason == "restricted" for thread in process.threads)
        )

    settings = (kind for kind in KINDS.values() if kind.remedy and not request.asks_for(kind.remedy))
    unused: dict[str, Any] = {kind.module: None for kind in settings}
    return replace(snapshot, processes=tuple(filter(affects_plan, snapshot.processes)), **unused)


def watched(placement: Placement) -> tuple[str, ...]:
    return tuple(sorted({each.target.name for each in placement.placed if each.target.kind == "process"}))


def instance(process: Process) -> TargetKey:
    return TargetKey("process", str(process.pid), process.started)


def identity(process: Process) -> Identity:
    if process.unit.endswith(".service"):
        return process.unit, process.name, ""
    return "", process.name, process.command


def identity_of(placed: PlacedTarget) -> Identity:
    return placed.unit, placed.target.name, placed.command


def with_loads(snapshot: Snapshot, measured: Snapshot) -> Snapshot:
    """A process that started after ``measured`` has no load."""
    loads = {(process.pid, process.started): process for process in measured.processes}

    def load(process: Process) -> Process:
        before = loads.get((process.pid, process.started))
        if before is None or not before.load:
            return process
        threads = {thread.key: thread.load for thread in before.threads}
        return replace(
            process,
            load=before.load,
            threads=tuple(replace(thread, load=threads.get(thread.key, 0.0)) for thread in process.threads),
        )

    rates = {card.target.key: card.rate for card in measured.coalescing or ()}
    cards = snapshot.coalescing
    return replace(
        snapshot,
        sample_seconds=measured.sample_seconds,
        processes=tuple(map(load, snapshot.processes)),
        coalescing=cards and tuple(replace(card, rate=rates.get(card.target.key, 0.0)) for card in cards),
    )


def _partitioned(snapshot: Snapshot, request: Request) -> CpuSet:
    """What a request for live isolation may allocate."""
    if request.isolation != "live":
        return CpuSet()
    states = (cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups)
    return union(state.cpus for state in states if state.kind != "member" and not state.invalid)
