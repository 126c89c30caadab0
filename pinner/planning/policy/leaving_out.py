"""Takes the changes of targets that wait (backoff_counts) out of a plan."""

from collections.abc import Mapping
from dataclasses import replace

from pinner.model.change import PlannedChange, StateChange, TargetKey, group_of, without_room
from pinner.model.kinds import cpus_of
from pinner.model.plan.plan import LeftOut, Placement, Plan
from pinner.model.snapshot import Snapshot
from pinner.planning.available.reservations import contested, staying
from pinner.planning.plan_identity import id_from_placement

_NEEDS_CPU = "it needs a CPU of a target that stays as it is"
_IN_USE = "guests that stay as they are use its CPUs"


def leave_out(plan: Plan, reasons: Mapping[TargetKey, str], placement: Placement | None, snapshot: Snapshot) -> Plan:
    """The plan, under another id, without these targets, the guests that need a CPU of one of them, and the interrupts
    that would get a CPU of a guest that stays."""
    out = [change for change in plan.changes if change.target.key in reasons]
    remaining = tuple(change for change in plan.changes if change not in out)
    if not out:
        return plan
    while blocked := {group_of(remaining[position].target) for position, _ in without_room(out, remaining)}:
        out += [change for change in remaining if group_of(change.target) in blocked]
        remaining = tuple(change for change in remaining if change not in out)
    waiting = _waiting(remaining, snapshot)
    changes = tuple(change for change in remaining if change.target.key not in waiting)
    whys = {**dict.fromkeys(waiting, _IN_USE), **reasons}
    skipped = tuple(
        LeftOut(change.target, whys.get(change.target.key, _NEEDS_CPU))
        for change in plan.changes
        if change not in changes
    )
    name = id_from_placement(plan.basis.snapshot, plan.request, placement, sorted(map(str, reasons)))
    less = replace(plan, id=name, changes=changes, skipped=(*plan.skipped, *skipped))
    return replace(less, contested=contested(less, snapshot))


def _waiting(remaining: tuple[PlannedChange, ...], snapshot: Snapshot) -> frozenset[TargetKey]:
    irqs = [change for change in remaining if isinstance(change, StateChange) and change.target.kind == "irq"]
    theirs = staying(snapshot, {change.target.key for change in remaining}) if irqs else None
    return frozenset(change.target.key for change in irqs if theirs is not None and cpus_of(change.after) & theirs)
