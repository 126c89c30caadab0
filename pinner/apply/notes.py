"""What a run tells the journal and its observers: each change's state, and its failures in words."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from pinner.apply.ports import Host, Journal, Progress
from pinner.model.change import Group, Target, group_of
from pinner.model.errors import Busy, PinnerError
from pinner.model.kinds import DEFINED
from pinner.model.run.journal import Damaged, Entry, EntryState, Run, RunState, is_final
from pinner.model.text import listed

NAMED = 16
LOSSES = 3

RECOVERED = {
    "applied": "finished",
    "applied_partly": "finished in part",
    "undone": "rolled back",
    "failed": "rolled back in part",
    "rolled_back": "its rollback finished",
    "rolled_back_partly": "its rollback finished in part",
}


def reported(run: Run, entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.run == run.id and is_final(run, entry)]


class Notes:
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
        """``corrected``: other runs' entries, which the end replaces. Several threads may note, each other entries."""
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
        """By ``seq``."""
        self._guard = threading.Lock()

    def begin(self, entry: Entry) -> None:
        self._progress(entry, self.total)

    def note(self, entry: Entry, state: EntryState, error: str = "") -> Entry:
        """A repeated report (same state and error) keeps its first time: it is one record in both audit trails."""
        noted = replace(entry, state=state, error=error, at=self._now())
        with self._guard:
            last = self._reported.get(entry.seq)
            if again := last is not None and last.result == noted.result:
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


def summary(failures: Collection[tuple[Entry, str]], groups: int) -> str:
    reasons = [_reason(entry, error) for entry, error in failures]
    return f"{len(reasons)} of {groups} guests and processes are not placed: {listed(reasons, NAMED, '; ')}"


def losses(lost: Sequence[Entry], changes: int, needless: int) -> str:
    """``changes``: all of the run; ``needless`` of them had nothing to undo."""
    if not lost:
        return ""
    why = "; ".join(entry.error for entry in lost[:LOSSES])
    others = f", and {needless} needed no undo" if needless else ""
    return f"{len(lost)} of {changes} changes could not be undone{others}: {why}"


def unreadable(damaged: Sequence[Damaged]) -> str:
    if not damaged:
        return ""
    named = listed(list(map(str, damaged)), NAMED)
    return f"the journal has damaged records, which are not undone: {named}; {damaged[0].why}"


def words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def unanswering(entries: Sequence[Entry], host: Host, unread: Mapping[str, str]) -> dict[Group, tuple[Entry, str]]:
    """The guests that do not answer or are ``unread`` (see Admission), each with its first entry and the reason."""
    guests: dict[Group, Entry] = {}
    for entry in entries:
        if entry.change.target.kind in DEFINED:
            guests.setdefault(group_of(entry.change.target), entry)
    busy = {}
    for guest, entry in guests.items():
        with suppress(PinnerError):
            try:
                require_read(entry.change.target, unread)
                host.guests.require_answering(entry.change.target)
            except Busy as error:
                busy[guest] = (entry, words(error))
    return busy


def require_read(target: Target, unread: Mapping[str, str]) -> None:
    if why := unread.get(target.owner):
        raise Busy(str(target), f"it cannot be read: {why}", overdue=False)


def _reason(failed: Entry, error: str) -> str:
    target = str(failed.change.target)
    return error if error.startswith(target) else f"{target}: {error}"
