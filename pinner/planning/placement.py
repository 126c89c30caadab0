"""The placement recorded after an apply, the ids of plans from it, and the drift from it, with its cause where a
snapshot shows it."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import assert_never

from pinner import codec
from pinner.model.change import AffinityChange, PlannedChange, StateChange, Target, TargetKey, boots_differ, group_of
from pinner.model.cpuset import CpuSet, union
from pinner.model.kinds import INSIDE, KINDS, PINNED
from pinner.model.plan.plan import PlacedTarget, Placement, Plan, Roles, plan_id
from pinner.model.plan.request import Request
from pinner.model.policy import Cause, Drift
from pinner.model.snapshot import Snapshot
from pinner.model.states import cpus_of
from pinner.model.text import listed
from pinner.planning.available.operator_pins import owned
from pinner.planning.request.context import target_threads
from pinner.planning.request.processes import identity, identity_of, instance, managed_processes

_NAMED = 4
ABSENT = 256
"""Absent targets that keep their recorded CPUs."""


def record(
    plan: Plan, snapshot: Snapshot, previous: Placement | None, *, unplaced: Collection[TargetKey] = ()
) -> Placement:
    """``unplaced`` targets have no threads and no state in the placement. From ``previous`` of the same request, absent
    guests and processes keep their CPUs, and missing CPUs their role."""
    request = replace(plan.request, rebalance=False)
    before = previous if previous is not None and previous.request == request else None
    been = {(each.target.key, each.cpus) for each in before.placed if each.was_placed} if before else ()
    placed = tuple(
        replace(each, threads=(), state=None, returns=(each.target.key, each.cpus) in been)
        if each.target.key in unplaced
        else each
        for each in _placed(plan, snapshot, before)
    )
    absent = tuple(_absent(before, placed)) if before else ()
    return Placement(
        host=plan.host,
        plan=plan.id,
        at=plan.basis.taken_at,
        request=request,
        roles=before.roles if before and _keeps_roles(plan, before) else plan.roles,
        placed=(*placed, *absent[:ABSENT]),
        boot=snapshot.boot,
        since=max((thread.started for process in snapshot.processes for thread in process.threads), default=0),
    )


def in_boot(placement: Placement, boot: str) -> Placement:
    """After a restart no thread passes for a recorded one by its id and start time, and what has returned gets its
    recorded CPUs as new."""
    if not boots_differ(placement.boot, boot):
        return placement
    placed = (
        replace(
            each,
            threads=(),
            returns=each.was_placed,
            target=replace(each.target, part=None) if each.target.kind == "process" else each.target,
        )
        for each in placement.placed
    )
    return replace(placement, placed=tuple(placed), since=0, boot=boot)


def _placed(plan: Plan, snapshot: Snapshot, previous: Placement | None) -> Iterator[PlacedTarget]:
    threads_of = target_threads(snapshot, plan.request, previous)
    processes = {instance(process): process for process in snapshot.processes}
    given = {each.target.key: each.state for each in previous.placed} if previous else {}
    inside = (each for each in plan.changes if each.target.kind in INSIDE and isinstance(each, StateChange))
    given |= {change.target.key: change.after for change in inside}
    for want in plan.wanted:
        threads = tuple(thread.key for thread in threads_of.get(want.target, ()))
        process = processes.get(want.target.key)
        unit, _, command = identity(process) if process else ("", "", "")
        yield PlacedTarget(want.target, want.cpus, threads, unit, command, given.get(want.target.key))


def _absent(previous: Placement, placed: tuple[PlacedTarget, ...]) -> Iterator[PlacedTarget]:
    """Of guests that do not run or whose QEMU has not started all threads yet, settings of these or of irqbalance, and
    processes that have ended or are idle."""
    present = {each.target.key for each in placed}
    known = subjects(each.target for each in placed)
    names = {identity_of(each) for each in placed if each.target.kind == "process"}
    for each in previous.placed:
        if each.target.kind == "process":
            gone = identity_of(each) not in names
            names.add(identity_of(each))
        else:
            ended = subject(each.target)
            gone = ended not in known if ended else each.target.kind in PINNED and each.target.key not in present
        if gone:
            yield each


def _keeps_roles(plan: Plan, previous: Placement) -> bool:
    """The plan has only recorded CPUs, or makes do: a role has none of its own, or shares recorded CPUs and did not
    before."""
    ours, theirs = _sets(plan.roles), _sets(previous.roles)
    if all(here <= there for here, there in zip(ours, theirs, strict=True)):
        return True
    lost = any(there and not here & there for here, there in zip(ours, theirs, strict=True))
    sharing = _shared(ours) & previous.roles.cpus - _shared(theirs)
    return not plan.request.rebalance and (lost or bool(sharing))


def _sets(roles: Roles) -> tuple[CpuSet, CpuSet, CpuSet]:
    return roles.housekeeping, roles.emulator, roles.vcpu


def _shared(sets: tuple[CpuSet, CpuSet, CpuSet]) -> CpuSet:
    return union(one & other for one, other in combinations(sets, 2))


def subject(target: Target) -> TargetKey | None:
    """What stays when a setting ends: the guest, or irqbalance itself."""
    if target.kind in INSIDE:
        return group_of(target)
    kind = KINDS[target.kind]
    return TargetKey(target.kind, "", None) if kind.state and kind.ends_with_process else None


def subjects(targets: Iterable[Target]) -> frozenset[TargetKey]:
    return frozenset(kept for target in targets if (kept := subject(target)) is not None)


OTHERS: tuple[Cause, ...] = ("cpuset", "systemd", "balancer", "libvirt", "guest", "unknown")
"""Another program can move the same target again and again, or a guest set it."""

_CAUSES_IN_WORDS: dict[Cause, str] = {
    "arrived": "newly placed",
    "busy": "became busy",
    "restarted": "restarted",
    "hotplug": "newly plugged in",
    "thread": "has new threads",
    "offline": "CPUs went offline or came online",
    "moved": "moves because of another guest",
    "cpuset": "a cpuset was written",
    "systemd": "moved by systemd's settings of its unit",
    "balancer": "moved by a balancer",
    "libvirt": "pinned by another client of libvirt",
    "guest": "set by the guest",
    "failed": "could not be placed before",
    "unknown": "moved by another program",
}


def drifts(plan: Plan, placement: Placement | None, snapshot: Snapshot) -> tuple[Drift, ...]:
    """One for each change; of a blocked plan, only for targets that were placed before; and one for each setting that a
    guest has set since, which the plan leaves. A cause that a snapshot does not show is ``unknown``. Without a
    placement every target is newly placed."""
    reader = _Reader(placement, snapshot, plan.request)
    changes = (change for change in plan.changes if not plan.blocked or reader.was_placed(change.target))
    return *(_drift(change, reader) for change in changes), *_chosen(plan, placement)


def _chosen(plan: Plan, placement: Placement | None) -> Iterator[Drift]:
    changed = {change.target.key for change in plan.changes}
    now = {want.target.key: want.state for want in plan.wanted if want.target.key not in changed}
    for placed in placement.placed if placement else ():
        state = now.get(placed.target.key)
        if placed.state is not None and state is not None and state != placed.state:
            detail = "the guest has set it since, and keeps it"
            yield Drift(placed.target, placed.cpus, (), "guest", detail, (state, placed.state))


def reasoned(plan: Plan, drifts: tuple[Drift, ...]) -> Plan:
    causes = {drift.target.key: drift.detail or _in_words(drift) for drift in drifts}
    changes = (
        replace(change, reason=f"{causes[change.target.key]}; {change.reason}")
        if change.target.key in causes
        else change
        for change in plan.changes
    )
    return replace(plan, changes=tuple(changes))


def _in_words(drift: Drift) -> str:
    if drift.cause == "unknown" and drift.target.kind == "process":
        return "moved by itself or by another program"
    return _CAUSES_IN_WORDS[drift.cause]


def _drift(change: PlannedChange, reader: "_Reader") -> Drift:
    cause = reader.cause(change)
    match change:
        case AffinityChange():
            misplaced = tuple(mask for mask in change.before if mask.cpus != change.after)
            detail = reader.who_owns(change) if cause == "moved" else ""
            return Drift(change.target, change.after, misplaced, cause, detail)
        case StateChange():
            return Drift(change.target, cpus_of(change.after), (), cause, states=(change.before, change.after))
    assert_never(change)


class _Reader:
    def __init__(self, placement: Placement | None, snapshot: Snapshot, request: Request) -> None:
        placed = placement.placed if placement else ()
        self._online = snapshot.topology.online
        self._alone = union(each.cpus for each in placed if each.target.kind == "vcpu" and len(each.cpus) == 1)
        self._placed = {each.target.key: each for each in placed}
        self._owners = {each.target.owner for each in placed if each.target.kind != "process"}
        self._subjects = subjects(each.target for each in placed)
        self._managed = managed_processes(snapshot, placement) if placement else frozenset()
        self._named = request.processes
        self._owned = owned(snapshot, request)
        self._names = {guest.uuid: guest.name for guest in snapshot.guests}

    def was_placed(self, target: Target) -> bool:
        placed = self._placed.get(target.key)
        return placed is not None and bool(placed.threads)

    def cause(self, change: PlannedChange) -> Cause:
        target = change.target
        placed = self._placed.get(target.key)
        if placed is not None:
            match change:
                case AffinityChange():
                    return self._affinity_since(placed, change)
                case StateChange() if KINDS[target.kind].follows_former:
                    return "unknown"  # their CPUs after the plan depend on those that they have now
                case StateChange():
                    return self._since(placed, cpus_of(change.after)) or "unknown"
                case _:
                    assert_never(change)
        if target.kind == "process":
            return "restarted" if (int(target.owner), target.part) in self._managed else self._first(target)
        if subject(target) in self._subjects:
            return "restarted"
        return KINDS[target.kind].when_new if target.owner in self._owners else "arrived"

    def who_owns(self, change: AffinityChange) -> str:
        lost = self._placed[change.target.key].cpus - change.after
        owners = [f"{self._names[guest]} ({both})" for guest, cpus in self._owned.items() if (both := cpus & lost)]
        return f"an operator pinned guests to CPUs of its place: {listed(owners, _NAMED)}" if owners else ""

    def _affinity_since(self, placed: PlacedTarget, change: AffinityChange) -> Cause:
        known = set(placed.threads)
        if not known and change.before:
            return self._first(placed.target)
        if change.before and known.isdisjoint(mask.key for mask in change.before):
            return "restarted"
        if replaced := self._since(placed, change.after):
            return replaced
        misplaced = {mask.key for mask in change.before if mask.cpus != change.after}
        return "thread" if misplaced and known.isdisjoint(misplaced) else "unknown"

    def _since(self, placed: PlacedTarget, after: CpuSet) -> Cause | None:
        if placed.cpus == after:
            return None
        return "offline" if self._resized(placed.cpus, after) else "moved"

    def _first(self, target: Target) -> Cause:
        named = target.kind != "process" or not {target.name, target.owner}.isdisjoint(self._named)
        return "arrived" if named else "busy"

    def _resized(self, before: CpuSet, after: CpuSet) -> bool:
        """No guest had the new CPUs to itself: they came online."""
        return bool(before - self._online) or (before < after and not (after - before) & self._alone)


def id_of(snapshot_id: str, request: Request) -> str:
    return plan_id(snapshot_id.encode(), codec.dump(request))


def id_from_placement(
    snapshot_id: str, request: Request, placement: Placement | None, excluded_keys: Iterable[str]
) -> str:
    recorded = codec.dump(placement) if placement else b""
    return plan_id(snapshot_id.encode(), codec.dump(request), recorded, *map(str.encode, excluded_keys))
