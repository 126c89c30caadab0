"""Which changes of a plan an agent makes. It trusts no caller: by the planner's rules it admits what the planner makes
from the agent's own snapshot. Load does not count: the agent measures none."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import assert_never

from pinner.model.change import AffinityChange, PlannedChange, StateChange, Target, TargetKey, ThreadKey, boots_differ
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Refused, StalePlan
from pinner.model.guest.nova import require_clear
from pinner.model.kinds import ALONE, KINDS, WITH_STATE, WITH_THREADS
from pinner.model.machine.process import NOT_PERMITTED, Process, Thread
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.snapshot import Snapshot, settings
from pinner.model.states import cpus_of
from pinner.planning.available.numa import VcpuGroup, bounds_of
from pinner.planning.changes import guests_memory
from pinner.planning.policy import release
from pinner.planning.policy.release import Placed
from pinner.planning.request.context import Context, roles_now
from pinner.planning.request.processes import allocatable_cpus, instance, moving, process_target
from pinner.planning.settings import table
from pinner.planning.strategies import rules
from pinner.planning.strategies.strategy import Answer


@dataclass(frozen=True, slots=True)
class Past:
    cpus: CpuSet = CpuSet()
    """CPUs that pinner gave to targets. They stay usable where another owner has restricted a process to them since:
    else each taskset would stop the policy."""
    names: frozenset[str] = frozenset()
    """Processes that pinner moved: their masks are no restriction by their owner."""
    placed: Placed = field(default_factory=Placed)


def require_permitted(plan: Plan, snapshot: Snapshot, past: Past, *, migrate_memory: bool) -> None:
    """Raises Refused, or NovaConflict, for the first change that the rules do not allow.

    The plan is ``identified``. Changes of ended processes and of unread guests are skipped: no run makes them.
    """
    snapshot = _without_own(snapshot, past.names)
    inventory = inventory_of(snapshot)
    unread = {guest.uuid for guest in snapshot.guests if guest.unread}
    changes = [each for each in plan.changes if each.target.key in inventory and each.target.owner not in unread]
    (_require_release if plan.is_release else _require_placement)(plan, changes, snapshot, past)
    if migrate_memory:
        _require_homes(plan, snapshot)


def _require_placement(plan: Plan, changes: list[PlannedChange], snapshot: Snapshot, past: Past) -> None:
    context = _context(plan, snapshot, past)
    plan = _with_roles_now(plan, context)
    movable = {target.key: threads for target, threads in context.threads.items()}
    wanted = tuple(_wanted(change) for change in changes)
    require_clear(wanted, context.allocatable.nova, emulators=plan.request.nova_emulators)
    processes = {instance(process): process for process in snapshot.processes}
    for change in changes:
        match change:
            case AffinityChange():
                if change.target.key not in movable:
                    raise refused(change, _why_immovable(change.target, processes, context.skipped))
                _require_own_threads(change, movable[change.target.key], processes.get(change.target.key))
            case StateChange():
                _require_state(change, plan, context)
            case _:
                assert_never(change)
    checked: set[object] = set()
    for change, want in zip(changes, wanted, strict=True):
        # Thousands of threads share a handful of sets: each is checked once for each kind of target.
        if (same := (want.target.kind, want.cpus, want.state)) not in checked:
            checked.add(same)
            if broken := next(rules.broken(Answer(plan.roles, (want,)), context), ""):
                raise refused(change, broken)
        elif broken := next(rules.outside_bound(want, context), ""):
            raise refused(change, broken)
    together = rules.broken(Answer(plan.roles, wanted), context), map(str, rules.without_cpus(wanted, context))
    if changes and (broken := next(chain(*together), "")):
        raise Refused(f"plan {plan.id}", "its changes together", broken)


def _with_roles_now(plan: Plan, context: Context) -> Plan:
    return replace(plan, roles=roles_now(context)) if plan.request.fix else plan


def _require_release(plan: Plan, changes: list[PlannedChange], snapshot: Snapshot, past: Past) -> None:
    """A release confines no thread to CPUs of others, or outside the guest's bound, that it did not have before."""
    allocatable = allocatable_cpus(snapshot, plan.request, only_firm=True)
    theirs = release.of_others(allocatable)
    threads = {target.key: here for guest in snapshot.guests for target, here in guest.threads_by_target.items()}
    bounds = bounds_of(snapshot.guests, snapshot.topology)
    for change in changes:
        if not isinstance(change, AffinityChange) or change.target.key not in threads:
            raise refused(change, "a release changes only the threads of guests")
        if change.target.key not in past.placed.last:
            raise refused(change, "the agent's journal has no run that placed it, so there is nothing to release")
        _require_own_threads(change, threads[change.target.key], None)
        if not change.after or not change.after <= allocatable.online:
            raise refused(change, f"a release needs online CPUs (online: {allocatable.online})")
        prior = release.prior(threads[change.target.key], past.placed.first) & allocatable.online
        bound = bounds[change.target.owner].of(change.target) if change.target.owner in bounds else VcpuGroup(())
        if outside := change.after - prior - bound.within(change.after):
            raise refused(change, f"it did not have CPUs {outside} before, and {bound.why}")
        if change.after <= theirs and not (prior and change.after >= prior):
            theirs_by = [f"{cpus} belong to {owner}" for owner, cpus in allocatable.nova.owners_of(change.after)]
            why = "; ".join((*allocatable.objections(change.after), *theirs_by))
            raise refused(change, f"it had CPUs {prior or 'that are not known'} before, and {why}")


def _require_homes(plan: Plan, snapshot: Snapshot) -> None:
    after = {each.target.key: each.after for each in plan.changes if isinstance(each, AffinityChange)}
    places = tuple(
        Wanted(target, after.get(target.key, thread.affinity), "")
        for guest in snapshot.guests
        for target, threads in guest.threads_by_target.items()
        if target.kind == "vcpu"
        for thread in threads
    )
    homes = {memory.target.key: memory.home for memory in guests_memory(snapshot, places)}
    for memory in plan.memory:
        if memory.home is None:
            continue
        wanted = f"memory on node {memory.home}"
        if memory.target.key not in homes:
            raise StalePlan(plan.id, (f"{memory.target} is gone",))
        if homes[memory.target.key] != memory.home:
            raise Refused(str(memory.target), wanted, "no node, or another one, holds all vCPUs of the guest")


def _require_state(change: StateChange, plan: Plan, context: Context) -> None:
    if why := table.objection(change, plan, context):
        raise refused(change, why)


def _require_own_threads(change: AffinityChange, threads: tuple[Thread, ...], process: Process | None) -> None:
    """Former masks count, too: an apply also moves new threads that have one."""
    movable = {thread.key for thread in threads}
    staying = {thread.key: thread for thread in process.threads if thread.key not in movable} if process else {}
    masks = {thread.affinity: thread for thread in staying.values() if thread.immovable_reason != "per-cpu"}
    for before in change.before:
        if (thread := staying.get(ThreadKey(before.tid, before.started)) or masks.get(before.cpus)) is not None:
            reason = thread.immovable_reason or "the request excludes it"
            raise refused(change, f"its thread {thread.tid} must not move: {_REASONS.get(reason, reason)}")


_REASONS = {
    "per-cpu": "it is a kernel thread that cannot leave its CPU",
    "guest": "it belongs to a guest, and moves only with that guest",
    "pinner": "it is pinner itself",
    "real-time": "it has real-time threads",
    "restricted": "its owner restricted it to fewer CPUs, and the plan's request does not name the process",
    "not-permitted": NOT_PERMITTED,
}


def _why_immovable(target: Target, processes: Mapping[TargetKey, Process], skipped: tuple[LeftOut, ...]) -> str:
    process = processes.get(target.key)
    if process is None:
        if whys := [each.why for each in skipped if each.target.key == target.key]:
            return whys[0]
        guests = {each.target.owner: each.why for each in skipped if each.target.kind == "guest"}
        if target.owner in guests:
            return f"the guest stays as it is: {guests[target.owner]}"
        return "the plan's request is not for this guest"
    reasons = [
        process.immovable_reason,
        "real-time" if process.is_realtime else "",
        *(thread.immovable_reason for thread in process.threads),
    ]
    return _REASONS.get(next(filter(None, reasons), ""), "the plan's request excludes it, or is for some guests only")


def _context(plan: Plan, snapshot: Snapshot, past: Past) -> Context:
    context = Context.of(snapshot, plan.request, lenient=True)
    every = {(process.pid, process.started) for process in snapshot.processes}
    processes = {move.target: move.threads for move in moving(snapshot, plan.request, every)}
    return replace(
        context,
        allocatable=allocatable_cpus(snapshot, plan.request, past.cpus, hosts_own=past.cpus, only_firm=True),
        threads={**context.threads, **processes},
    )


def _without_own(snapshot: Snapshot, names: frozenset[str]) -> Snapshot:
    def own(process: Process) -> Process:
        if process.name not in names:
            return process
        threads = (
            replace(thread, immovable_reason="") if thread.immovable_reason == "restricted" else thread
            for thread in process.threads
        )
        return replace(process, threads=tuple(threads))

    return replace(snapshot, processes=tuple(map(own, snapshot.processes))) if names else snapshot


def _wanted(change: PlannedChange) -> Wanted:
    match change:
        case AffinityChange():
            return Wanted(change.target, change.after, change.reason)
        case StateChange():
            return Wanted(change.target, cpus_of(change.after), change.reason, change.after)
    assert_never(change)


def identified(plan: Plan, snapshot: Snapshot) -> tuple[Plan, frozenset[Target]]:
    """The plan without the wanted guests and the targets of ALONE that have ended, under the inventory's names.

    Raises Refused for a target that the inventory does not name, or that is named twice; StalePlan where a guest or a
    part of it has ended.
    """
    if boots_differ(plan.basis.boot, snapshot.boot):
        raise StalePlan(plan.id, ("the host was restarted after the plan was made",))
    inventory = inventory_of(snapshot)
    twice = next((each for each, times in Counter(c.target.key for c in plan.changes).items() if times > 1), None)
    ended: set[Target] = set()
    gone: list[str] = []
    changes: list[PlannedChange] = []
    for change in plan.changes:
        target = change.target
        if target.key == twice:
            raise refused(change, "the plan changes this target more than once")
        _require_kind(change)
        changes.append(replace(change, target=inventory.get(target.key, target)))
        if target.key in inventory:
            continue
        if target.kind == "sysctl" and target.owner not in SYSCTLS:
            raise refused(change, f"a plan changes only these sysctls: {', '.join(SYSCTLS)}")
        if target.kind in ALONE and (target.kind != "process" or _is_process_id(target)):
            ended.add(target)
        elif target.kind in WITH_STATE:
            raise refused(change, "the agent's inventory has no guest with such a cgroup, or no work queues")
        elif target.kind == "process":
            raise refused(change, "a process is named by its id and its start time")
        else:
            gone.append(f"{target} is gone")
    if gone:
        raise StalePlan(plan.id, tuple(gone))
    guests = {guest.uuid for guest in snapshot.guests}
    wanted = tuple(want for want in plan.wanted if want.target.owner in guests)
    return replace(plan, wanted=wanted, changes=tuple(changes)), frozenset(ended)


def inventory_of(snapshot: Snapshot) -> dict[TargetKey, Target]:
    def found() -> Iterator[Target]:
        for guest in snapshot.guests:
            yield from guest.threads_by_target
            yield from guest.forbidden_targets
        yield from map(process_target, snapshot.processes)
        yield from settings(snapshot)

    return {target.key: target for target in found()}


def _require_kind(change: PlannedChange) -> None:
    kind = change.target.kind
    match change:
        case AffinityChange():
            fits = kind in WITH_THREADS
        case StateChange():
            fits = kind in WITH_STATE and all(
                isinstance(s, KINDS[kind].state or ()) for s in (change.before, change.after)
            )
        case _:
            assert_never(change)
    if not fits:
        raise refused(change, f"a {kind} has no {change.kind} of this form")


def _is_process_id(target: Target) -> bool:
    return target.part is not None and target.owner.isascii() and target.owner.isdecimal() and len(target.owner) <= 10


def refused(change: PlannedChange, why: str) -> Refused:
    match change:
        case AffinityChange():
            wanted = f"CPUs {change.after}"
        case StateChange():
            wanted = f"the state '{change.after}'"
        case _:
            assert_never(change)
    return Refused(str(change.target), wanted, why)
