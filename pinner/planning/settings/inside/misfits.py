"""Changes inside guests that are made already, or do not fit what the guests say now. A guest may say another thing
each time, so these fail alone: else one guest would keep all others from their CPUs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pinner.model.change import Group, StateChange, Target, group_of
from pinner.model.guest.guest import Guest
from pinner.model.kinds import INSIDE, KINDS
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.inside import GuestSettings
from pinner.model.snapshot import Snapshot, settings
from pinner.planning.settings.inside.common import STAYS
from pinner.planning.settings.table import ROWS


def without_made(plan: Plan, snapshot: Snapshot) -> Plan:
    """A plan that was applied in part may be applied again."""
    now = settings(snapshot)
    inside = (change for change in plan.changes if change.target.kind in INSIDE)
    made = {change.target for change in inside if change.after == now.get(change.target)}
    return replace(plan, changes=tuple(change for change in plan.changes if change.target not in made))


_ASKS_NONE = "this host asks no agents of guests"


def misfits(plan: Plan, snapshot: Snapshot) -> dict[Target, str]:
    """Each with the reason. What a guest that is read does not have is none: it has ended."""
    changes: dict[Group, list[StateChange]] = {}
    for change in plan.changes:
        if isinstance(change, StateChange) and change.target.kind in INSIDE:
            changes.setdefault(group_of(change.target), []).append(change)
    guests = {guest.uuid: guest for guest in snapshot.guests}
    told = {kind: getattr(snapshot, KINDS[kind].module) for kind in INSIDE}
    by_group = {(kind, each.guest): each for kind in INSIDE for each in told[kind] or ()}
    found: dict[Target, str] = {}
    for group, members in changes.items():
        settings = by_group.get((group.kind, group.owner))
        why = _ASKS_NONE if told[group.kind] is None else _unread(settings, guests.get(group.owner))
        if why:
            found |= {change.target: f"it cannot be read: {why}" for change in members}
        elif settings and (wanted := ROWS[group.kind].wanted):
            found |= _misfits(members, wanted(settings))
    return found


def _unread(settings: GuestSettings | None, guest: Guest | None) -> str:
    if settings is not None:
        return settings.unread
    if guest is None:
        return ""
    return guest.unread or (f"the guest is {guest.state}" if guest.state != "running" else "")


def _misfits(changes: Iterable[StateChange], wanted: Iterable[Wanted]) -> Iterator[tuple[Target, str]]:
    """A setting that stays is wanted as it is read."""
    by_target = {want.target.key: want for want in wanted}
    for change in changes:
        want = by_target.get(change.target.key)
        if want is None or change.after == want.state:
            continue
        if want.reason == STAYS:
            yield change.target, f"it has '{want.state}' now, and keeps that"
        else:
            yield change.target, f"by what the guest says now, a plan gives it '{want.state}', not '{change.after}'"
