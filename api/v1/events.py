"""/v1/events: events of guests, sent by libvirt's hook script, pinner-nova-listener or an operator's script."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.access.context import caller, pinner
from pinner.api.description.operations import may_raise
from pinner.api.schemas.bodies import NewEvent, NewLeavingEvent
from pinner.model.errors import Busy, HostBusy, HostUnreachable, NotFound, NotPermitted, Refused, StalePlan
from pinner.model.event import GuestEventKind, GuestEventOutcome

bp = APIBlueprint("events", __name__, tag="Events")


@bp.post("/events/guest-started")
@bp.input(NewEvent)
@bp.output(RootModel[GuestEventOutcome], 202)
@bp.doc(operation_id="report_guest_started", extensions=may_raise(NotFound, Busy, HostUnreachable, NotPermitted))
def started(json_data: NewEvent) -> tuple[GuestEventOutcome, int]:
    """Report that a guest has started on a host, also after a reboot or a migration.

    If the host has a policy, pinner checks the host at once."""
    return _handle(json_data, "started")


@bp.post("/events/guest-leaving")
@bp.input(NewLeavingEvent)
@bp.output(RootModel[GuestEventOutcome], 202)
@bp.doc(
    operation_id="report_guest_leaving",
    extensions=may_raise(NotFound, Busy, HostBusy, Refused, StalePlan, HostUnreachable, NotPermitted),
)
def leaving(json_data: NewLeavingEvent) -> tuple[GuestEventOutcome, int]:
    """Report that a guest is about to be migrated to another host.

    Before this answers, a run of kind `release` restores the CPUs that the guest had before pinner placed it. pinner
    then skips the guest until `guest-started` reports it on this host again, or for `[policy] migration_seconds`."""
    return _handle(json_data, "leaving")


@bp.post("/events/guest-gone")
@bp.input(NewEvent)
@bp.output(RootModel[GuestEventOutcome], 202)
@bp.doc(operation_id="report_guest_gone", extensions=may_raise(NotFound, Busy, HostUnreachable, NotPermitted))
def gone(json_data: NewEvent) -> tuple[GuestEventOutcome, int]:
    """Report that a guest was deleted or has left the host.

    pinner deletes its record of the guest's earlier events."""
    return _handle(json_data, "gone")


def _handle(body: NewEvent, kind: GuestEventKind) -> tuple[GuestEventOutcome, int]:
    sender = caller()
    return pinner().guest_event(body.host, body.to_event(kind, sender), sender), 202
