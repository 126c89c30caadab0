"""Changes inside guests that do not fit what the guests say now. A guest may say another thing each time, so they fail
alone: else one guest would keep all others from their CPUs."""

from collections.abc import Iterable, Iterator

from pinner.model.change import Group, StateChange, Target, group_of
from pinner.model.guest.guest import Guest
from pinner.model.kinds import INSIDE, KINDS
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.inside import GuestSettings
from pinner.model.snapshot import Snapshot
from pinner.planning.settings.inside.common import STAYS
from pinner.planning.settings.table import ROWS


def misfits(plan: Plan, snapshot: Snapshot) -> dict[Target, str]:
    """Each with the reason. What a guest that is read does not have is none: it has ended."""
    found: dict[Target, str] = {}
    changes: dict[Group, list[StateChange]] = {}
    for change in plan.changes:
        if isinstance(change, StateChange) and change.target.kind in INSIDE:
            changes.setdefault(group_of(change.target), []).append(change)
    guests = {guest.uuid: guest for guest in snapshot.guests}
    for kind in {group.kind for group in changes}:
        told = getattr(snapshot, KINDS[kind].module)
        by_guest: dict[str, GuestSettings] = {settings.guest: settings for settings in told or ()}
        for group in (group for group in changes if group.kind == kind):
            why = _ASKS_NONE if told is None else _unread(by_guest.get(group.owner), guests.get(group.owner))
            if why:
                found |= {change.target: f"it cannot be read: {why}" for change in changes[group]}
            elif (settings := by_guest.get(group.owner)) and (wanted := ROWS[kind].wanted):
                found |= _misfits(changes[group], wanted(settings))
    return found


_ASKS_NONE = "this host asks no agents of guests"


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
