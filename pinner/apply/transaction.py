"""The course of one run: changes made one after the other, or taken back, each noted in the journal."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from pinner.apply.memory import MemoryMove
from pinner.apply.move import Move
from pinner.apply.ports import Host, Journal
from pinner.apply.setting import Setting
from pinner.apply.undo import undo
from pinner.model.change import SETTINGS, MemoryChange
from pinner.model.errors import Busy, Gone, PinnerError, StoreUnavailable
from pinner.model.journal import Entry, EntryState, Run, RunState

Progress = Callable[[Entry, int], None]
"""Called with an entry and how many entries the run has: once when the run is in the journal and nothing is touched
yet, then after every change. It must not raise."""

INTERRUPTED = "interrupted: the process that carried it out died"
"""The error of a run that recovery has taken back."""

LOSSES = 3
"""How many of the changes that could not be taken back a run's error tells; its entries tell all."""

_RECOVERED = {
    "applied": "finished",
    "undone": "taken back",
    "failed": "taken back in part",
    "rolled_back": "its rollback finished",
    "rolled_back_partly": "its rollback finished in part",
}


class Transaction:
    """One run that is open in the journal."""

    def __init__(
        self,
        run: Run,
        entries: Sequence[Entry],
        host: Host,
        journal: Journal,
        now: Callable[[], datetime],
        progress: Progress,
        *,
        resumed: bool = False,
    ) -> None:
        """``resumed`` says that the run was interrupted, so that any of its changes may be made, or half made."""
        self._run = run
        self._entries = entries
        self._host = host
        self._journal = journal
        self._now = now
        self._progress = progress
        self._resumed = resumed
        self._ended: dict[int, Entry] = {}
        for entry in entries[:1]:
            progress(entry, len(entries))

    def make(self) -> Run:
        """Make every change; the run's end is ``applied``, ``undone``, or ``failed`` where an undo got stuck.

        Raises StoreUnavailable where the end cannot be written: then all is taken back, for a run without an end
        counts as interrupted.
        """
        made: list[Entry] = []
        for position, entry in enumerate(self._entries):
            move = self._move(entry)
            try:
                made.append(self._make(move))
            except BaseException as error:  # whatever it is, Ctrl-C too: the host must not stay half moved
                closed = self._abort(move, error, made, self._entries[position + 1 :])
                if isinstance(error, PinnerError):
                    return closed
                raise
        try:
            return self.close("applied")
        except StoreUnavailable:
            for entry in undoable(self._run, made):
                self._undo(entry)
            raise

    def undo(self, *, repin: Collection[int]) -> Run:
        """Take the changes of an interrupted apply back, in the order given; it ends ``undone`` or ``failed``.

        ``repin`` are the ``seq`` of those for which a call may still be under way (see ``undo.take_back``).
        """
        lost = [entry for entry in self._undo_all(self._run.persist, repin) if entry.state == "stuck"]
        return self.close("failed" if lost else "undone", "; ".join(filter(None, (INTERRUPTED, self._losses(lost)))))

    def roll_back(self, *, persist: bool, repin: Collection[int] = ()) -> Run:
        """Take the changes of another run back, in the order given; ``persist`` and ``repin`` as for ``undo``."""
        lost = [
            noted
            for entry, noted in zip(self._entries, self._undo_all(persist, repin), strict=True)
            if noted.state == "stuck" or (noted.state == "gone" and entry.state != "gone")
        ]
        return self.close("rolled_back_partly" if lost else "rolled_back", self._losses(lost))

    def _undo_all(self, persist: bool, repin: Collection[int]) -> list[Entry]:
        return [
            self._note(entry, *undo(entry, self._host, persist=persist, repin=entry.seq in repin))
            for entry in self._entries
        ]

    def _losses(self, lost: list[Entry]) -> str:
        if not lost:
            return ""
        why = "; ".join(entry.error for entry in lost[:LOSSES])
        return f"{len(lost)} of {len(self._entries)} changes could not be taken back: {why}"

    def close(self, state: RunState, error: str = "") -> Run:
        """End the run. Raises StoreUnavailable."""
        counted = Counter(entry.state for entry in self._ended.values())
        told = ", ".join(f"{number} {name}" for name, number in counted.items())
        recovered = f"interrupted; {_RECOVERED[state]}: {told or 'nothing to do'}" if self._resumed else ""
        ended = replace(self._run, state=state, error=error, ended_at=self._now(), recovered=recovered)
        self._journal.end(ended)
        return ended

    def _move(self, entry: Entry) -> Move | MemoryMove | Setting:
        if isinstance(entry.change, MemoryChange):
            return MemoryMove(entry, entry.change, self._host)
        if entry.change.target.kind in SETTINGS:
            return Setting(entry, entry.change, self._host, self._journal, resumed=self._resumed)
        persist = self._run.persist
        return Move(entry, entry.change, self._host, self._journal, persist=persist, resumed=self._resumed)

    def _make(self, move: Move | MemoryMove | Setting) -> Entry:
        try:
            move.make()
        except Gone as error:
            return self._note(move.entry, "gone", str(error))
        return self._note(move.entry, "done")

    def _abort(
        self, move: Move | MemoryMove | Setting, error: BaseException, made: list[Entry], rest: Sequence[Entry]
    ) -> Run:
        """Put everything back as it was, the latest change first. Only then write it down: the host comes before its
        record, which has known every prior mask since the change was begun."""
        failed = move.entry
        touched = [*made, *([failed] if move.touched or self._resumed else ()), *(rest if self._resumed else ())]
        # Who does not answer must not keep the others waiting.
        slow = failed.change.target.owner if isinstance(error, Busy) else ""
        back = sorted(undoable(self._run, touched), key=lambda entry: slow != "" and entry.change.target.owner == slow)
        outcomes = [(entry, *self._undo(entry, force=move.touched and entry is failed)) for entry in back]
        state, problem = next(((state, why) for entry, state, why in outcomes if entry is failed), ("undone", ""))
        why = "; but its undo: ".join(filter(None, (words(error), problem)))
        self._note(failed, "stuck" if state == "stuck" else "failed", why)
        for outcome in outcomes:
            if outcome[0] is not failed:
                self._note(*outcome)
        for entry in () if self._resumed else rest:
            self._note(entry, "undone", "not made: a change before it failed")
        stuck = any(entry.state == "stuck" for entry in self._ended.values())
        return self.close("failed" if stuck else "undone", words(error))

    def _undo(self, entry: Entry, *, force: bool = False) -> tuple[EntryState, str]:
        return undo(entry, self._host, persist=self._run.persist, force=force)

    def _note(self, entry: Entry, state: EntryState, error: str = "") -> Entry:
        noted = replace(entry, state=state, error=error, at=self._now())
        self._ended[entry.seq] = noted
        self._journal.note(noted)
        self._progress(noted, len(self._entries))
        return noted


def undoable(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """Those of a run's entries that may still hold something that was otherwise (of a guest that is gone: its
    definition), the last one first."""
    states = ("intent", "done", "stuck", "gone") if run.persist else ("intent", "done", "stuck")
    return [entry for entry in reversed(entries) if entry.state in states]


def words(error: BaseException) -> str:
    """An error for people, also where it has no text of its own."""
    return str(error) or type(error).__name__
