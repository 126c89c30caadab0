"""The state of each change of a run, for the journal and for those who watch the run."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from pinner.apply.ports import Journal, Progress
from pinner.apply.work.failures import RECOVERED
from pinner.model.run.change_text import entry_result
from pinner.model.run.journal import Entry, EntryState, Run, RunState, is_final


def reported(run: Run, entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.run == run.id and is_final(run, entry)]


class Notes:
    """The notes of one open run. Several threads may note, each other entries."""

    def __init__(
        self,
        run: Run,
        total: int,
        journal: Journal,
        now: Callable[[], datetime],
        progress: Progress,
        *,
        resumed: bool = False,
        corrected: Sequence[Entry] = (),
        reported: Iterable[Entry] = (),
    ) -> None:
        """``total``: of entries. ``corrected``: entries of other runs, which the end of the run replaces."""
        self.run = run
        self.total = total
        self.journal = journal
        self.resumed = resumed
        self.latest: dict[int, Entry] = {}
        """By ``seq``."""
        self._now = now
        self._progress = progress
        self._corrected = corrected
        self._reported = {entry.seq: entry for entry in reported}
        """By ``seq``: the last report of each entry."""
        self._guard = threading.Lock()

    def begin(self, entry: Entry) -> None:
        self._progress(entry, self.total)

    def note(self, entry: Entry, state: EntryState, error: str = "") -> Entry:
        """A report is a run, an entry, and a state with its error. A repeated one keeps the first one's time: so it is
        one record, in the agent's trail and in the centre's."""
        noted = replace(entry, state=state, error=error, at=self._now())
        with self._guard:
            last = self._reported.get(entry.seq)
            if again := last is not None and entry_result(last) == entry_result(noted):
                noted = replace(noted, at=last.at)
            self.latest[entry.seq] = self._reported[entry.seq] = noted
            self.journal.note(noted, again=again)
            self._progress(noted, self.total)
        return noted

    def close(self, state: RunState, error: str = "") -> Run:
        """Raises StoreUnavailable."""
        counted = Counter(entry.state for entry in self.latest.values())
        outcomes = ", ".join(f"{number} {name}" for name, number in counted.items()) or "nothing to do"
        recovered = f"interrupted; {RECOVERED[state]}: {outcomes}" if self.resumed else ""
        ended = replace(self.run, state=state, error=error, ended_at=self._now(), recovered=recovered)
        self.journal.end(ended, self._corrected)
        return ended
