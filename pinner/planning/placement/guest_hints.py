"""A snapshot together with what events told of its guests."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from pinner.model.event import GuestHint
from pinner.model.guest import Guest, NovaIdentity, with_nova_identity
from pinner.model.snapshot import Snapshot


def with_guest_hints(snapshot: Snapshot, told: Mapping[str, GuestHint], now: datetime) -> Snapshot:
    """The snapshot whose guests have the identities that Nova told, where their metadata say less, and are known to be
    leaving. ``told`` is by UUID."""
    if not told:
        return snapshot
    return replace(snapshot, guests=tuple(_with(guest, told.get(guest.uuid), now) for guest in snapshot.guests))


def _with(guest: Guest, told: GuestHint | None, now: datetime) -> Guest:
    if told is None:
        return guest
    if told.nova is not None:
        guest = with_nova_identity(guest, _merged(guest.nova, told.nova))
    return replace(guest, leaving=told.leaving_until is not None and now < told.leaving_until)


def _merged(written: NovaIdentity | None, told: NovaIdentity) -> NovaIdentity:
    """What stands in the metadata, and where nothing stands what was told."""
    if written is None:
        return told
    fields = NovaIdentity.__dataclass_fields__
    return NovaIdentity(**{name: getattr(written, name) or getattr(told, name) for name in fields})
