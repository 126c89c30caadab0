"""The placement recorded after a plan has been applied."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from pinner.model.change import Target, TargetKey, boots_differ, group_of
from pinner.model.cpuset import CpuSet, union
from pinner.model.kinds import INSIDE, KINDS, PINNED
from pinner.model.plan.plan import PlacedTarget, Placement, Plan, Roles
from pinner.model.snapshot import Snapshot
from pinner.planning.request.context import target_threads
from pinner.planning.request.process_matching import identity, identity_of, instance

ABSENT = 256
"""Absent targets that keep their recorded CPUs."""


def record(
    plan: Plan, snapshot: Snapshot, previous: Placement | None, *, unplaced: Collection[TargetKey] = ()
) -> Placement:
    """The placement after a plan. ``unplaced`` targets have no threads in it. From ``previous``, if it is of the same
    request, absent guests and processes keep their recorded CPUs, and CPUs that are missing for a while keep their
    role."""
    request = replace(plan.request, rebalance=False)
    before = previous if previous is not None and previous.request == request else None
    placed = tuple(
        replace(each, threads=()) if each.target.key in unplaced else each for each in _placed(plan, snapshot, before)
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
    """The placement as this boot sees it: after a restart no thread passes for a recorded one by its id and start time,
    and what has returned gets its recorded CPUs as new."""
    if not boots_differ(placement.boot, boot):
        return placement
    placed = (
        replace(
            each, threads=(), target=replace(each.target, part=None) if each.target.kind == "process" else each.target
        )
        for each in placement.placed
    )
    return replace(placement, placed=tuple(placed), since=0, boot=boot)


def _placed(plan: Plan, snapshot: Snapshot, previous: Placement | None) -> Iterator[PlacedTarget]:
    threads_of = target_threads(snapshot, plan.request, previous)
    processes = {instance(process): process for process in snapshot.processes}
    for want in plan.wanted:
        threads = tuple(thread.key for thread in threads_of.get(want.target, ()))
        process = processes.get(want.target.key)
        unit, _, command = identity(process) if process else ("", "", "")
        yield PlacedTarget(want.target, want.cpus, threads, unit, command)


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
    """What stays when such a setting ends: the guest, or irqbalance itself."""
    if target.kind in INSIDE:
        return group_of(target)
    kind = KINDS[target.kind]
    return TargetKey(target.kind, "", None) if kind.state and kind.ends_with_process else None


def subjects(targets: Iterable[Target]) -> frozenset[TargetKey]:
    return frozenset(found for target in targets if (found := subject(target)) is not None)
