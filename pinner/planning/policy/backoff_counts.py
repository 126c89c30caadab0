"""Counts how often a target was moved again after a reconcile, or could not be placed, marks the drifts that wait, and
takes what waits out of a plan. Backoff (model/policy.py) has the wait for each count."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from pinner.model.change import Group, PlannedChange, StateChange, TargetKey, group_of, without_room
from pinner.model.kinds import INSIDE, KINDS, TargetKind
from pinner.model.plan.plan import LeftOut, Placement, Plan
from pinner.model.policy import Backoff, Backoffs, Drift
from pinner.model.snapshot import Snapshot
from pinner.model.states import cpus_of
from pinner.planning.changes import contested, staying
from pinner.planning.placement import OTHERS, id_from_placement


def with_backoff(drifts: tuple[Drift, ...], backoffs: Backoffs, now: datetime) -> tuple[Drift, ...]:
    """While a guest or process is not tried again after a failure, that is the cause of its drifts."""
    return tuple(_with_backoff(drift, backoffs, now) for drift in drifts)


def reasons(drifts: Iterable[Drift]) -> dict[TargetKey, str]:
    return {drift.target.key: _reason(drift) for drift in drifts if drift.backoff_until}


def after_reconcile(drifts: Iterable[Drift], backoffs: Backoffs, now: datetime) -> dict[TargetKey, Backoff]:
    counted, drifts = forget(backoffs, now), tuple(drifts)
    for group in {group_of(drift.target) for drift in drifts} & counted.keys():
        counted[group] = replace(counted[group], error="")
    keys = {key: _is_restart(drift) for drift in drifts if (key := counted_as(drift)) is not None}
    return counted | {key: Backoff(_times(counted, key) + 1, now, "", is_new) for key, is_new in keys.items()}


def after_failures(errors: Mapping[Group, str], backoffs: Backoffs, now: datetime) -> dict[TargetKey, Backoff]:
    counted = forget(backoffs, now)
    return counted | {group: Backoff(_times(counted, group) + 1, now, error) for group, error in errors.items()}


def forget(backoffs: Backoffs, now: datetime) -> dict[TargetKey, Backoff]:
    """Those that are not over. After a step of the clock backwards, one that began later than now counts as begun
    now."""
    return {
        target: replace(backoff, last=min(backoff.last, now))
        for target, backoff in backoffs.items()
        if not backoff.is_over(now)
    }


def restarts(plan: Plan, drifts: Iterable[Drift]) -> list[Drift]:
    changed = {change.target.key for change in plan.changes}
    return [drift for drift in drifts if drift.target.key in changed and _is_restart(drift)]


def counted_as(drift: Drift) -> TargetKey | None:
    """What starts anew has a new id: so all processes of one name count together, and all boots of a guest. None: not
    counted."""
    if drift.cause == "restarted":
        if drift.target.kind in INSIDE:
            return group_of(drift.target)
        if KINDS[drift.target.kind].ends_with_process:
            return TargetKey(drift.target.kind, drift.target.name, None)
    return drift.target.key if drift.cause in OTHERS else None


def _is_restart(drift: Drift) -> bool:
    return drift.cause == "restarted" and drift.target.kind == "process"


def _times(backoffs: Backoffs, target: TargetKey) -> int:
    return backoffs[target].times if target in backoffs else 0


def _reason(drift: Drift) -> str:
    if drift.cause == "failed":
        return f"it is in backoff, because it could not be placed: {drift.detail}"
    if drift.cause == "restarted":
        return f"it is in backoff, because {_WHO.get(drift.target.kind, 'it is')} started again and again"
    return "it is in backoff, because another program moves it again each time"


_WHO: Mapping[TargetKind, str] = {"process": "processes of its name are", **dict.fromkeys(INSIDE, "its guest is")}


def _with_backoff(drift: Drift, backoffs: Backoffs, now: datetime) -> Drift:
    failed = backoffs.get(group_of(drift.target))
    if failed is not None and failed.error and not failed.is_over(now):
        if failed.backoff_until <= now:
            return replace(drift, times=failed.times)
        return replace(
            drift, cause="failed", detail=failed.error, times=failed.times, backoff_until=failed.backoff_until
        )
    key = counted_as(drift)
    again = None if key is None else backoffs.get(key)
    if again is None or again.is_over(now):
        return drift
    until = again.backoff_until
    return replace(drift, times=again.times, backoff_until=until if until > now else None)


_NEEDS_CPU = "it needs a CPU of a target that stays as it is"
_IN_USE = "guests that stay as they are use its CPUs"


def remaining(changes: tuple[PlannedChange, ...], left: Collection[TargetKey]) -> tuple[PlannedChange, ...]:
    """Those without these targets, and without the guests that need a CPU of one of them."""
    gone, groups = {*left}, frozenset[Group]()
    while True:
        out = [change for change in changes if change.target.key in gone or group_of(change.target) in groups]
        gone |= {change.target.key for change in out}
        others = tuple(change for change in changes if change.target.key not in gone)
        groups = frozenset(group_of(others[position].target) for position, _ in without_room(out, others))
        if not groups:
            return others


def leave_out(plan: Plan, reasons: Mapping[TargetKey, str], placement: Placement | None, snapshot: Snapshot) -> Plan:
    """The plan, under another id, without these targets, the guests that need a CPU of one of them, and the interrupts
    that would get a CPU of a guest that stays."""
    others = remaining(plan.changes, reasons)
    if len(others) == len(plan.changes):
        return plan
    in_use = _irqs_on_staying_guests(others, snapshot)
    changes = tuple(change for change in others if change.target.key not in in_use)
    whys = {**dict.fromkeys(in_use, _IN_USE), **reasons}
    skipped = tuple(
        LeftOut(change.target, whys.get(change.target.key, _NEEDS_CPU))
        for change in plan.changes
        if change not in changes
    )
    name = id_from_placement(plan.basis.snapshot, plan.request, placement, sorted(map(str, reasons)))
    less = replace(plan, id=name, changes=changes, skipped=(*plan.skipped, *skipped))
    return replace(less, contested=contested(less, snapshot))


def _irqs_on_staying_guests(remaining: tuple[PlannedChange, ...], snapshot: Snapshot) -> frozenset[TargetKey]:
    irqs = [change for change in remaining if isinstance(change, StateChange) and change.target.kind == "irq"]
    theirs = staying(snapshot, {change.target.key for change in remaining}) if irqs else None
    return frozenset(change.target.key for change in irqs if theirs is not None and cpus_of(change.after) & theirs)
