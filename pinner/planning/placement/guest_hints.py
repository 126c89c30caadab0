"""Adds to a snapshot the facts about its guests that only events report."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from pinner.model.guest.guest import Guest, NovaIdentity, with_nova_identity
from pinner.model.policy.event import GuestHint
from pinner.model.snapshot import Snapshot


def with_guest_hints(snapshot: Snapshot, hints: Mapping[str, GuestHint], now: datetime) -> Snapshot:
    """The snapshot with ``hints`` (by guest UUID): the Nova identity, where the guest's metadata has less of it, and
    whether the guest is being migrated away."""
    if not hints:
        return snapshot
    return replace(snapshot, guests=tuple(_with(guest, hints.get(guest.uuid), now) for guest in snapshot.guests))


def merged(better: NovaIdentity | None, other: NovaIdentity | None) -> NovaIdentity | None:
    """The identity of the better source; ``other`` fills the fields that it lacks.

    Extra specs belong to their flavor: they are never taken from ``other`` where it names another flavor, nor where the
    better source says that the flavor has none.
    """
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
