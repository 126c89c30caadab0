"""The entries of a run that an undo may still need."""

from collections.abc import Sequence

from pinner.model.kinds import DEFINED, KINDS
from pinner.model.run.journal import Entry, Run


def undoable(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a run that an undo may still need, the last one first, but late ones at the end: irqbalance
    moves the interrupts as soon as it gets other CPUs.

    A guest that is gone may still have a definition to restore, unless a rollback has restored it before: somebody may
    have changed it since. No other target that is gone has anything to restore: a later run may have changed it."""
    restored = run.state in ("rolled_back", "rolled_back_partly")
    gone = DEFINED if run.persist and not restored else ()
    needed = [
        entry
        for entry in reversed(entries)
        if entry.state in ("intent", "done", "stuck") or (entry.state == "gone" and entry.change.target.kind in gone)
    ]
    return sorted(needed, key=lambda entry: KINDS[entry.change.target.kind].is_late)
