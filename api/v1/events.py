"""/v1/events: what others tell of guests (libvirt's hook script, pinner-nova-listener, a script of yours)."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import caller, pinner
from pinner.api.openapi import failing
from pinner.api.schemas import NewEvent, NewLeaving
from pinner.model.errors import Busy, HostBusy, HostUnreachable, NotFound, NotPermitted, StalePlan
from pinner.model.event import GuestEventKind, GuestEventOutcome

bp = APIBlueprint("events", __name__, tag="Events")


@bp.post("/events/guest-started")
@bp.input(NewEvent)
@bp.output(RootModel[GuestEventOutcome], 202)
@bp.doc(extensions=failing(NotFound, Busy, HostUnreachable, NotPermitted))
def started(json_data: NewEvent) -> tuple[GuestEventOutcome, int]:
    """A guest runs on the host, anew or again: whoever keeps the host looks at once."""
    return _handle(json_data, "started")


@bp.post("/events/guest-leaving")
@bp.input(NewLeaving)
@bp.output(RootModel[GuestEventOutcome], 202)
@bp.doc(extensions=failing(NotFound, Busy, HostBusy, StalePlan, HostUnreachable, NotPermitted))
def leaving(json_data: NewLeaving) -> tuple[GuestEventOutcome, int]:
    """A guest is about to be migrated away: it has the CPUs back that it had before pinner placed it when this returns,
    and is left alone until it is told that it `started` here again, or the time that is configured has passed."""
    return _handle(json_data, "leaving")


@bp.post("/events/guest-gone")
@bp.input(NewEvent)
@bp.output(RootModel[GuestEventOutcome], 202)
@bp.doc(extensions=failing(NotFound, Busy, HostUnreachable, NotPermitted))
def gone(json_data: NewEvent) -> tuple[GuestEventOutcome, int]:
    """A guest was deleted, or has left the host: what was told of it is forgotten."""
    return _handle(json_data, "gone")


def _handle(body: NewEvent, kind: GuestEventKind) -> tuple[GuestEventOutcome, int]:
    who = caller()
    return pinner().guest_event(body.host, body.to_event(kind, who), who), 202
