"""Adds to a snapshot the facts about its guests that only events report."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from pinner.model.event import GuestHint
from pinner.model.guest import Guest, NovaIdentity, with_nova_identity
from pinner.model.snapshot import Snapshot


def with_guest_hints(snapshot: Snapshot, hints: Mapping[str, GuestHint], now: datetime) -> Snapshot:
    """The snapshot with ``hints`` (by guest UUID): the Nova identity, where the guest's metadata has less of it, and
    whether the guest is being migrated away."""
    if not hints:
        return snapshot
    return replace(snapshot, guests=tuple(_with(guest, hints.get(guest.uuid), now) for guest in snapshot.guests))


def _with(guest: Guest, hint: GuestHint | None, now: datetime) -> Guest:
    if hint is None:
        return guest
    if hint.nova is not None:
        guest = with_nova_identity(guest, _merged(guest.nova, hint.nova))
    return replace(guest, leaving=hint.leaving_until is not None and now < hint.leaving_until)


def _merged(written: NovaIdentity | None, notified: NovaIdentity) -> NovaIdentity:
    """The identity written in the metadata; where a field is empty there, Nova's notification fills it."""
    if written is None:
        return notified
    fields = NovaIdentity.__dataclass_fields__
    return NovaIdentity(**{name: getattr(written, name) or getattr(notified, name) for name in fields})
