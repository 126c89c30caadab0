"""Settles the run that its process left open: killed, or without power, or without a disk to write to.

Every change is judged by the kernel, for the journal may lag behind it. What is written is safe to be written again, so
a recovery that is killed is simply recovered.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal

from pinner.apply.ports import Host, Journal
from pinner.apply.staleness import key, masks_of
from pinner.apply.transaction import Transaction, undoable
from pinner.model.change import SETTINGS, MemoryChange
from pinner.model.errors import PinnerError
from pinner.model.journal import Entry, Run

Policy = Literal["back", "forward"]
"""What becomes of an interrupted apply; an interrupted rollback is always finished."""


def recover(host: Host, journal: Journal, policy: Policy, now: Callable[[], datetime]) -> Run | None:
    """Settle the run that is open though nobody works at it; None where there is none.

    Going forward ends like an apply: what cannot be made is taken back with all the rest. What recovery can neither
    make nor take back is ``stuck``, and the run ``failed``: it can be rolled back later. Raises StoreUnavailable: the
    run stays open.
    """
    run = journal.interrupted()
    if run is None:
        return None
    try:
        return _resolve(run, host, journal, policy, now)
    finally:
        journal.leave(run)


def _resolve(run: Run, host: Host, journal: Journal, policy: Policy, now: Callable[[], datetime]) -> Run:
    def transaction(entries: Sequence[Entry]) -> Transaction:
        return Transaction(run, entries, host, journal, now, lambda *_: None, resumed=True)

    undone = journal.run(run.undoes) if run.kind == "rollback" else run
    entries = journal.entries(undone.id)
    # An apply that had begun to give up has told so: then a change had failed, which is not tried again. And without
    # an entry it had not begun.
    if (
        run.kind == "apply"
        and policy == "forward"
        and entries
        and all(each.state in ("intent", "done", "gone") for each in entries)
    ):
        return transaction(entries).make()
    repin = _under_way(entries, host)
    # A half made setting first: it may have widened the masks of all that come after it.
    settings = [each.seq for each in entries if each.seq in repin and each.change.target.kind in SETTINGS]
    back = transaction(sorted(undoable(undone, entries), key=lambda entry: entry.seq not in settings))
    return back.undo(repin=repin) if undone is run else back.roll_back(persist=undone.persist, repin=repin)


def _under_way(entries: Sequence[Entry], host: Host) -> frozenset[int]:
    """The ``seq`` of the changes for which a call of the dead process may still be with libvirtd: as changes are made
    in order and taken back in reverse, the last that shows on the host, and the next one that could."""
    alive = [entry for entry in entries if entry.state != "gone"]
    shown = [position for position, entry in enumerate(alive) if _shows(entry, host)]
    last = max(shown, default=-1)
    return frozenset(entry.seq for entry in alive[max(last, 0) : last + 2])


def _shows(entry: Entry, host: Host) -> bool:
    change = entry.change
    if isinstance(change, MemoryChange):
        return False
    with suppress(PinnerError):
        if change.target.kind in SETTINGS:
            return host.state(change.target) == change.states[1]
        before = masks_of(change.before)
        return any(
            thread.cpus == change.after != before.get(key(thread), change.after) for thread in host.masks(change.target)
        )
    return False
