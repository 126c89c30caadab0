"""Looks at a run, one after the other, to what is new in each: the same for a run here and a run on a server."""

from collections.abc import Iterable, Iterator

from pinner.model.journal import Entry, Run, settled
from pinner.usecases import Progress


class Following:
    """One follower of one run."""

    def __init__(self) -> None:
        self._known: dict[int, Entry] = {}

    def learn(self, progress: Progress) -> Progress:
        """Take what somebody else told already; gives it back."""
        if progress.entry is not None:
            self._known[progress.entry.seq] = progress.entry
        return progress

    def news(self, run: Run, entries: Iterable[Entry]) -> Iterator[Progress]:
        """Every entry that has ended and is not known so yet; after the run's end, its last word.

        ``entries`` must have been read after ``run``: those that are read after its end are all there are.
        """
        entries = tuple(entries)
        for entry in entries:
            if settled(run, entry) and self._known.get(entry.seq) != entry:
                self._known[entry.seq] = entry
                yield Progress(run, len(self._known), len(entries), entry)
        if run.state != "running":
            yield Progress(run, sum(settled(run, entry) for entry in entries), len(entries), None)
