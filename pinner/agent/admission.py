from collections.abc import Callable
from contextlib import suppress

from pinner.apply.ports import Admission, Journal
from pinner.model.change import Target
from pinner.model.errors import Invalid, NovaConflict, Refused, StalePlan
from pinner.model.kinds import ALONE, INSIDE, OF_GUESTS, SETTINGS, TargetKind
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Run
from pinner.model.snapshot import Snapshot
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.changes import require_free
from pinner.planning.policy.release import past_of


def admit(plan: Plan, run: Run, snapshot: Snapshot, journal: Journal) -> Admission:
    """Raises Refused, StalePlan."""
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


def require_settings(plan: Plan, inventory: Callable[[frozenset[TargetKind]], Snapshot]) -> None:
    """Raises Invalid for a plan whose settings all do not exist now: it begins no run. If some exist, the run names
    those that are gone. A setting inside a guest is known only to the guest, which the run asks."""
    kinds = frozenset(change.target.kind for change in plan.changes)
    if not kinds & set(SETTINGS) or not kinds <= set(ALONE) - set(INSIDE):
        return
    ended: frozenset[Target] = frozenset()
    with suppress(Refused, StalePlan):  # the run says why
        _, ended = identified(plan, inventory(kinds))
    if len(ended) == len(plan.changes):
        absent = [str(target) for change in plan.changes if (target := change.target).kind in SETTINGS]
        raise Invalid("plan changes", absent, "settings that this host has now; make a new plan")


def _past(plan: Plan, journal: Journal) -> Past:
    guests = {change.target.owner for change in plan.changes if change.target.kind in OF_GUESTS}
    released = sorted(guests) if plan.purpose == "release" else []
    return Past(
        cpus=journal.allocated(),
        names=journal.moved_processes(),
        placed=past_of(entry for guest in released for entry in journal.changes_of(guest)),
    )
