"""The admission of a plan: the planner's rules, with the agent's own snapshot and journal."""

from contextlib import suppress

from pinner.apply.ports import Admission, Journal
from pinner.model.change import PINNED
from pinner.model.errors import NovaConflict, Refused
from pinner.model.journal import Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot
from pinner.planning.admission import Past, require_permitted
from pinner.planning.guest_past import past_of
from pinner.planning.plan_identity import identified
from pinner.planning.reservations import require_free

_GUEST_KINDS = (*PINNED, "vhost")


def admit(plan: Plan, run: Run, snapshot: Snapshot, journal: Journal) -> Admission:
    """Compare the targets of the plan with the snapshot. Raises Refused, StalePlan."""
    known, ended = identified(plan, snapshot)
    if plan.purpose == "place":
        require_free(known, snapshot)

    def require(past: Past) -> None:
        require_permitted(known, snapshot, past, migrate_memory=run.migrate_memory)

    def require_permission() -> None:
        if plan.purpose != "release":
            # The journal is read only where it may matter, because it can be large.
            with suppress(Refused, NovaConflict):
                return require(Past())
        return require(_past(known, journal))

    owners = {change.target.owner for change in known.changes}
    unread = {guest.uuid: guest.unread for guest in snapshot.guests if guest.unread and guest.uuid in owners}
    return Admission(known, ended, unread, require_permission)


def _past(plan: Plan, journal: Journal) -> Past:
    guests = {each.target.owner for each in plan.changes if each.target.kind in _GUEST_KINDS}
    released = sorted(guests) if plan.purpose == "release" else []
    return Past(
        cpus=journal.allocated(),
        names=journal.moved_processes(),
        placed=past_of(entry for guest in released for entry in journal.changes_of(guest)),
    )
