"""The entries of a run that an undo may still need."""

from collections.abc import Sequence

from pinner.model.journal import Entry, Run


def undoable(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a run that an undo may still need, the last one first. A guest that is gone may still have a
    definition to restore, unless a rollback has restored it before: somebody may have changed it since."""
    restored = run.state in ("rolled_back", "rolled_back_partly")
    states = ("intent", "done", "stuck", "gone") if run.persist and not restored else ("intent", "done", "stuck")
    return [entry for entry in reversed(entries) if entry.state in states]
