"""Recovers the run that its process left open: killed, or without power, or without a disk to write to.

Every change is judged by the kernel, because the journal may lag behind it. Everything that recovery writes is safe to
be written again, so a recovery that is killed is simply started again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal

from pinner.apply import steps
from pinner.apply.ports import Host, Journal
from pinner.apply.transaction import Transaction, undoable
from pinner.model.errors import PinnerError
from pinner.model.journal import Entry, Run

RecoveryPolicy = Literal["back", "forward"]
"""Whether an interrupted apply is undone or finished; an interrupted rollback is always finished."""


def recover(host: Host, journal: Journal, policy: RecoveryPolicy, now: Callable[[], datetime]) -> Run | None:
    """Recover the open run whose process has ended; None where there is none.

    Going forward ends like an apply: if a change cannot be made, it is undone together with all others. A change that
    recovery can neither make nor undo is ``stuck``, and the run ``failed``: it can be rolled back later. Raises
    StoreUnavailable: then the run stays open.
    """
    run = journal.interrupted()
    if run is None:
        return None
    try:
        return _resolve(run, host, journal, policy, now)
    finally:
        journal.leave(run)


def _resolve(run: Run, host: Host, journal: Journal, policy: RecoveryPolicy, now: Callable[[], datetime]) -> Run:
    def transaction(entries: Sequence[Entry]) -> Transaction:
        return Transaction(run, entries, host, journal, now, lambda *_: None, resumed=True)

    undone = journal.run(run.undoes) if run.kind == "rollback" else run
    entries = journal.entries(undone.id)
    # An entry in another state shows that the apply had begun to undo: then a change had failed, and is not tried
    # again. And without an entry the apply had changed nothing.
    if (
        run.kind == "apply"
        and policy == "forward"
        and entries
        and all(each.state in ("intent", "done", "gone") for each in entries)
    ):
        return transaction(entries).make()
    under_way = _under_way(entries, host)
    # A half made change of a state first: it may have widened the masks that all changes after it set.
    first = [each.seq for each in entries if each.seq in under_way and steps.resets_masks(each.change)]
    back = transaction(sorted(undoable(undone, entries), key=lambda entry: entry.seq not in first))
    if undone is run:
        return back.undo(under_way=under_way)
    return back.roll_back(persist=undone.persist, under_way=under_way)


def _under_way(entries: Sequence[Entry], host: Host) -> frozenset[int]:
    """The ``seq`` of the changes for which a call of the dead process may still be with libvirtd. Changes are made in
    order and undone in reverse, so these are the last one that shows on the host, and the next one that could."""
    alive = [entry for entry in entries if entry.state != "gone"]
    begun = [position for position, entry in enumerate(alive) if _is_begun(entry, host)]
    last = max(begun, default=-1)
    return frozenset(entry.seq for entry in alive[max(last, 0) : last + 2])


def _is_begun(entry: Entry, host: Host) -> bool:
    with suppress(PinnerError):
        return steps.is_begun(entry.change, host)
    return False
