"""The difference between the recorded placement and the host's affinities, with its cause where a snapshot shows it."""

from dataclasses import replace
from typing import assert_never

from pinner.model.change import AffinityChange, PlannedChange, StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import KINDS, cpus_of
from pinner.model.plan.plan import PlacedTarget, Placement, Plan
from pinner.model.plan.request import Request
from pinner.model.policy import Cause, Drift
from pinner.model.snapshot import Snapshot
from pinner.planning.placement.record import subject, subjects
from pinner.planning.request.process_matching import managed_processes

OTHERS: tuple[Cause, ...] = ("cpuset", "systemd", "balancer", "libvirt", "unknown")
"""Another program can move the same target again and again."""

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
    "failed": "could not be placed before",
    "unknown": "moved by another program",
}


def drifts(plan: Plan, placement: Placement | None, snapshot: Snapshot) -> tuple[Drift, ...]:
    """One for each change; of a blocked plan, only for targets that were placed before.

    A cause that a snapshot does not show is ``unknown``; Agent.explain_drifts can find it. Without a placement every
    target is newly placed.
    """
    reader = _Reader(placement, snapshot, plan.request)
    changes = (change for change in plan.changes if not plan.blocked or reader.was_placed(change.target))
    return tuple(_drift(change, reader) for change in changes)


def reasoned(plan: Plan, found: tuple[Drift, ...]) -> Plan:
    causes = {drift.target.key: drift.detail or _in_words(drift) for drift in found}
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
            return Drift(change.target, change.after, misplaced, cause)
        case StateChange():
            return Drift(change.target, cpus_of(change.after), (), cause, states=(change.before, change.after))
    assert_never(change)


class _Reader:
    def __init__(self, placement: Placement | None, snapshot: Snapshot, request: Request) -> None:
        placed = placement.placed if placement else ()
        self._online = snapshot.topology.online
        self._placed = {each.target.key: each for each in placed}
        self._owners = {each.target.owner for each in placed if each.target.kind != "process"}
        self._subjects = subjects(each.target for each in placed)
        self._managed = managed_processes(snapshot, placement) if placement else frozenset()
        self._named = request.processes

    def was_placed(self, target: Target) -> bool:
        """Whether a run has placed the target, or found it in place."""
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
        if target.kind in ("vcpu", "iothread") and target.owner in self._owners:
            return "hotplug"
        return "thread" if target.kind == "vhost" and target.owner in self._owners else "arrived"

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
        """None where the target gets the same CPUs."""
        if placed.cpus == after:
            return None
        return "offline" if self._resized(placed.cpus, after) else "moved"

    def _first(self, target: Target) -> Cause:
        named = target.kind != "process" or not {target.name, target.owner}.isdisjoint(self._named)
        return "arrived" if named else "busy"

    def _resized(self, before: CpuSet, after: CpuSet) -> bool:
        return bool(before - self._online) or before < after
