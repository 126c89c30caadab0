"""Whether an event of a guest is late, and what the guest's hint is after it.

Events arrive late, twice and in any order. Only times of one publisher are compared: clocks differ. Other events are
ordered by Nova's request id, by their age, and by what libvirt says now.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from pinner.model.event import EventOrder, GuestEvent, GuestHint
from pinner.model.guest.guest import Guest, NovaIdentity, with_nova_identity
from pinner.model.snapshot import Snapshot

MAX_AHEAD = timedelta(minutes=1)
"""How far a publisher's clock may be ahead of the server's."""
MAX_AGE = timedelta(days=1)
"""Beyond it the publisher's clock is wrong, or the listener did not run."""
MAX_LEAVING_AGE = timedelta(seconds=30)
"""Nova begins a migration seconds after it reported it. A later release would take the guest from its CPUs for
nothing."""
REMEMBERED = 8


def hint_after(
    hint: GuestHint | None, event: GuestEvent, host: str, now: datetime, *, is_here: bool, migration: timedelta
) -> tuple[GuestHint | None, str]:
    """The hint after an event (None: none is kept), and why the event is ignored (empty: it is not).

    ``is_here``: libvirt has the guest now. ``migration``: how long a guest counts as leaving.
    """
    order = hint.order if hint else EventOrder()
    if why := _impossible(event, now):
        return hint, why
    if why := _late(order, event, now, is_here=is_here):
        return (hint if event.kind == "leaving" else _with_end(hint or _nothing(event, host, now), event)), why
    if event.kind == "gone":
        # The guest may be back before the begin of this migration arrives.
        ended = EventOrder(_latest(order, event), order.requests)
        return (_with_end(replace(_nothing(event, host, now), order=ended), event) if event.request else None), ""
    if not is_here:
        return hint, ""
    before = hint.nova if hint else None
    if event.kind == "leaving":
        # The destination reports that a guest leaves. The host of the guest knows the flavor better.
        order = EventOrder(_latest(order, event), order.requests, now, event.request)
        return GuestHint(event.guest, host, now, merged(before, event.nova), now + migration, order), ""
    until = hint.leaving_until if hint and event.at < (order.leaving_since or event.at) else None
    order = replace(order, latest=_latest(order, event))
    return _with_end(GuestHint(event.guest, host, now, merged(event.nova, before), until, order), event), ""


def _impossible(event: GuestEvent, now: datetime) -> str:
    age = now - event.at
    if age < -MAX_AHEAD:
        return f"its time {_text(event.at)} is {_span(-age)} ahead of this server's clock"
    return f"its time {_text(event.at)} was {_span(age)} ago" if age > MAX_AGE else ""


def _late(order: EventOrder, event: GuestEvent, now: datetime, *, is_here: bool) -> str:
    latest = order.latest.get(event.publisher)
    # A time that is further ahead was stored before this server's clock was set back.
    if latest is not None and event.at < latest <= now + MAX_AHEAD:
        return f"it is late: a later event, of {_text(latest)}, was handled before"
    if event.kind == "gone" and is_here:
        return "libvirt has the guest on this host"
    if event.kind == "leaving" and event.request and event.request in order.requests:
        return "it is late: its migration has ended, and the guest is on this host"
    if event.kind == "leaving" and now - event.at > MAX_LEAVING_AGE:
        return f"it is late: it was sent {_span(now - event.at)} ago, and a migration begins at once"
    return ""


def _latest(order: EventOrder, event: GuestEvent) -> dict[str, datetime]:
    others = [(name, at) for name, at in order.latest.items() if name != event.publisher]
    return dict([*others, (event.publisher, event.at)][-REMEMBERED:])


def _nothing(event: GuestEvent, host: str, now: datetime) -> GuestHint:
    return GuestHint(event.guest, host, now)


def _with_end(hint: GuestHint, event: GuestEvent) -> GuestHint:
    """A late end still ends its migration."""
    order = hint.order
    if event.request and event.request not in order.requests:
        order = replace(order, requests=(*order.requests, event.request)[-REMEMBERED:])
    stays = hint.leaving_until is None or bool(event.request and event.request == order.leaving_request)
    if not stays:
        return replace(hint, order=order)
    return replace(hint, leaving_until=None, order=replace(order, leaving_since=None, leaving_request=""))


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{span.days} days" if span.days > 1 else f"{seconds:.0f} s"


def with_guest_hints(snapshot: Snapshot, hints: Mapping[str, GuestHint], now: datetime) -> Snapshot:
    if not hints:
        return snapshot
    return replace(snapshot, guests=tuple(_with(guest, hints.get(guest.uuid), now) for guest in snapshot.guests))


def merged(better: NovaIdentity | None, other: NovaIdentity | None) -> NovaIdentity | None:
    """``other`` fills the fields that ``better`` lacks, but no extra specs of another flavor, nor where the flavor has
    none."""
    if better is None or other is None:
        return better or other
    fills = not better.specs_known and other.specs_known and better.is_same_flavor(other)
    specs = other if fills else better
    return NovaIdentity(
        instance=better.instance or other.instance,
        project=better.project or other.project,
        user=better.user or other.user,
        flavor=better.flavor or other.flavor,
        extra_specs=specs.extra_specs,
        flavor_id=better.flavor_id or (other.flavor_id if better.is_same_flavor(other) else ""),
        has_specs=specs.has_specs,
    )


def _with(guest: Guest, hint: GuestHint | None, now: datetime) -> Guest:
    if hint is None:
        return guest
    if (identity := merged(guest.nova, hint.nova)) is not None:
        guest = with_nova_identity(guest, identity)
    return replace(guest, leaving=hint.leaving_until is not None and now < hint.leaving_until)
