"""Applies a plan, so that the host ends as planned or as it was; and undoes an applied run.

Every change is written to the journal with the prior masks before it is made, and read back from the kernel after it.
The journal's lock allows one run at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from pinner.apply import staleness
from pinner.apply.ports import Host, Journal
from pinner.apply.steps.memory import memory_changes
from pinner.apply.transaction import Progress, Transaction, undoable, words
from pinner.model.change import PINNED, Change
from pinner.model.errors import RunConflict, StoreUnavailable
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan


def apply(plan: Plan, run: Run, host: Host, journal: Journal, now: Callable[[], datetime], progress: Progress) -> Run:
    """Apply the plan; the run that is returned is ``applied``, ``undone``, or ``failed`` where an undo got stuck.

    The entry of a guest or process that ends meanwhile is ``gone``, and the others go on. Raises HostBusy, Blocked,
    NovaConflict, StalePlan and Invalid before anything is touched, and StoreUnavailable where the journal can no longer
    be written: then all changes have been undone, and a recovery must end the run.
    """
    journal.begin(run)
    try:
        with _refusing(run, journal, now):
            # Only now that the host is locked: before, another run might have been about to end.
            changes: tuple[Change, ...] = staleness.check(plan, host, persist=run.persist)
            if run.migrate_memory:
                # Last, so that memory which the guests allocate meanwhile is on the node of their vCPUs already.
                changes += memory_changes(plan, host)
            entries = _intents(changes, run, host, now())
            journal.intend(*entries)
        return Transaction(run, entries, host, journal, now, progress).make()
    finally:
        journal.leave(run)


def rollback(run: Run, host: Host, journal: Journal, now: Callable[[], datetime], progress: Progress) -> Run:
    """Undo the run named ``run.undoes``, its changes in reverse order.

    A thread that another program has moved since stays, and a target that has ended cannot be restored: both are
    listed, and both runs are ``rolled_back_partly`` then. The rollback can be repeated. Raises NotFound, RunConflict,
    HostBusy.
    """
    _require_reversible(journal.run(run.undoes))
    journal.begin(run)
    try:
        with _refusing(run, journal, now):
            # Again now that the host is locked: another rollback of that run may have ended just before.
            undone = journal.run(run.undoes)
            _require_reversible(undone)
            entries = undoable(undone, journal.entries(undone.id))
            return Transaction(run, entries, host, journal, now, progress).roll_back(persist=undone.persist)
    finally:
        journal.leave(run)


@contextmanager
def _refusing(run: Run, journal: Journal, now: Callable[[], datetime]) -> Iterator[None]:
    """End the run as ``failed`` where the block raises."""
    try:
        yield
    except StoreUnavailable:
        raise
    except BaseException as error:
        journal.end(replace(run, state="failed", error=words(error), ended_at=now()))
        raise


def _intents(changes: tuple[Change, ...], run: Run, host: Host, at: datetime) -> tuple[Entry, ...]:
    guests = {change.target.owner for change in changes if run.persist and change.target.kind in PINNED}
    definitions = {guest: host.definition(guest) for guest in guests}
    return tuple(
        Entry(run.id, seq, change, "intent", at, definition=definitions.get(change.target.owner, ""))
        for seq, change in enumerate(changes, start=1)
    )


def _require_reversible(run: Run) -> None:
    if run.kind == "rollback":
        raise RunConflict(run.id, "a rollback itself", "apply its plan again to undo it")
    if run.state not in ("applied", "failed", "rolled_back_partly"):
        raise RunConflict(run.id, run.state, "only a run that has ended with changes in place can be rolled back")
