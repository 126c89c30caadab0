"""Compares successive readings of a run, local or remote, and returns the new progress."""

from collections.abc import Iterable, Iterator

from pinner.model.run.journal import Entry, Run, RunProgress, is_final
from pinner.store.runs.entries import Marks


class RunFollower:
    def __init__(self) -> None:
        self.seen: Marks = {}
        self._known: dict[int, Entry] = {}

    def learn(self, progress: RunProgress) -> RunProgress:
        if progress.entry is not None:
            self._known[progress.entry.seq] = progress.entry
        return progress

    def progress_of(self, run: Run, entries: Iterable[Entry], total: int) -> Iterator[RunProgress]:
        """Every new final entry, those of a rollback in reverse, as they are undone; after the run's end also the last
        progress, without an entry. ``entries`` are all of ``total``, or the new ones. Read them after ``run``, or those
        of an ended run may be incomplete."""
        for entry in reversed(tuple(entries)) if run.kind == "rollback" else entries:
            if is_final(run, entry) and self._known.get(entry.seq) != entry:
                self._known[entry.seq] = entry
                yield RunProgress(run, len(self._known), total, entry)
        if run.state != "running":
            yield RunProgress(run, len(self._known), total, None)
