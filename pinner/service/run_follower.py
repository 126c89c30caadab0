"""Looks at a run, one after the other, to what is new in each: the same for a run here and a run on a server."""

from collections.abc import Iterable, Iterator

from pinner.model.journal import Entry, Run, RunProgress, is_final


class RunFollower:
    """One follower of one run."""

    def __init__(self) -> None:
        self._known: dict[int, Entry] = {}

    def learn(self, progress: RunProgress) -> RunProgress:
        """Take what somebody else told already; gives it back."""
        if progress.entry is not None:
            self._known[progress.entry.seq] = progress.entry
        return progress

    def progress_of(self, run: Run, entries: Iterable[Entry]) -> Iterator[RunProgress]:
        """Every entry that has ended and is not known so yet; after the run's end, its last word.

        ``entries`` must have been read after ``run``: those that are read after its end are all there are.
        """
        entries = tuple(entries)
        for entry in entries:
            if is_final(run, entry) and self._known.get(entry.seq) != entry:
                self._known[entry.seq] = entry
                yield RunProgress(run, len(self._known), len(entries), entry)
        if run.state != "running":
            yield RunProgress(run, sum(is_final(run, entry) for entry in entries), len(entries), None)
