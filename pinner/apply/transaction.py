"""Transaction: makes or undoes the changes of one run, one after the other, and notes each one in the journal."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime

from pinner.apply import steps
from pinner.apply.ports import Host, Journal
from pinner.apply.steps import Step
from pinner.model.change import Target
from pinner.model.errors import Busy, Gone, PinnerError, StoreUnavailable
from pinner.model.journal import Entry, EntryState, Run, RunState

Progress = Callable[[Entry, int], None]
"""Called with an entry and the number of entries: once when the run is in the journal and the host is unchanged, then
after every change. It must not raise."""

INTERRUPTED = "interrupted: the process that carried it out died"
"""The error of a run that recovery has undone."""

LOSSES = 3
"""The largest number of failed undos that a run's error names. The run's entries show all of them."""

_RECOVERED = {
    "applied": "finished",
    "undone": "rolled back",
    "failed": "rolled back in part",
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
        ended: Collection[Target] = (),
    ) -> None:
        """``resumed``: the run was interrupted, so each change may be made, half made or not made. ``ended``: targets
        that had ended before the run; a new process with the same id must not be changed."""
        self._absent = ended
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
        """Make every change; the run ends ``applied``, ``undone``, or ``failed`` if a change could not be undone.

        Raises StoreUnavailable if the run's end cannot be written. All changes are undone then, because a run without
        an end counts as interrupted.
        """
        made: list[Entry] = []
        for position, entry in enumerate(self._entries):
            step = steps.step(entry, self._host, self._journal, persist=self._run.persist, resumed=self._resumed)
            try:
                made.append(self._make(step))
            except BaseException as error:  # any error, also Ctrl-C: the host must not stay half changed
                closed = self._abort(step, error, made, self._entries[position + 1 :])
                if isinstance(error, PinnerError):
                    return closed
                raise
        try:
            return self.close("applied")
        except StoreUnavailable:
            for entry in undoable(self._run, made):
                self._undo(entry)
            raise

    def undo(self, *, under_way: Collection[int]) -> Run:
        """Undo the changes of an interrupted apply, in the order given; it ends ``undone`` or ``failed``.

        ``under_way`` has the ``seq`` of each change for which a call of the dead process may still be running.
        """
        lost = [entry for entry in self._undo_all(self._run.persist, under_way) if entry.state == "stuck"]
        return self.close("failed" if lost else "undone", "; ".join(filter(None, (INTERRUPTED, self._losses(lost)))))

    def roll_back(self, *, persist: bool, under_way: Collection[int] = ()) -> Run:
        """Undo the changes of another run, in the order given; ``under_way`` as for ``undo``."""
        lost = [
            noted
            for entry, noted in zip(self._entries, self._undo_all(persist, under_way), strict=True)
            if noted.state == "stuck" or (noted.state == "gone" and entry.state != "gone")
        ]
        return self.close("rolled_back_partly" if lost else "rolled_back", self._losses(lost))

    def _undo_all(self, persist: bool, under_way: Collection[int]) -> list[Entry]:
        return [
            self._note(entry, *steps.undo(entry, self._host, persist=persist, under_way=entry.seq in under_way))
            for entry in self._entries
        ]

    def _losses(self, lost: list[Entry]) -> str:
        if not lost:
            return ""
        why = "; ".join(entry.error for entry in lost[:LOSSES])
        return f"{len(lost)} of {len(self._entries)} changes could not be undone: {why}"

    def close(self, state: RunState, error: str = "") -> Run:
        """End the run. Raises StoreUnavailable."""
        counted = Counter(entry.state for entry in self._ended.values())
        outcomes = ", ".join(f"{number} {name}" for name, number in counted.items()) or "nothing to do"
        recovered = f"interrupted; {_RECOVERED[state]}: {outcomes}" if self._resumed else ""
        ended = replace(self._run, state=state, error=error, ended_at=self._now(), recovered=recovered)
        self._journal.end(ended)
        return ended

    def _make(self, step: Step) -> Entry:
        if (target := step.entry.change.target) in self._absent:
            return self._note(step.entry, "gone", str(Gone(str(target))))
        try:
            step.make()
        except Gone as error:
            return self._note(step.entry, "gone", str(error))
        return self._note(step.entry, "done")

    def _abort(self, step: Step, error: BaseException, made: list[Entry], rest: Sequence[Entry]) -> Run:
        """Undo all changes, the latest one first, and note them in the journal only afterwards. The host comes first,
        and the journal has every prior mask already."""
        failed = step.entry
        touched = [*made, *([failed] if step.touched or self._resumed else ()), *(rest if self._resumed else ())]
        # A guest that does not answer must not delay the others.
        slow = failed.change.target.owner if isinstance(error, Busy) else ""
        back = sorted(undoable(self._run, touched), key=lambda entry: slow != "" and entry.change.target.owner == slow)
        outcomes = [(entry, *self._undo(entry, force=step.touched and entry is failed)) for entry in back]
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
        return steps.undo(entry, self._host, persist=self._run.persist, force=force)

    def _note(self, entry: Entry, state: EntryState, error: str = "") -> Entry:
        noted = replace(entry, state=state, error=error, at=self._now())
        self._ended[entry.seq] = noted
        self._journal.note(noted)
        self._progress(noted, len(self._entries))
        return noted


def undoable(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """The entries of a run that an undo may still need, the last one first. A guest that is gone may still have a
    definition to restore."""
    states = ("intent", "done", "stuck", "gone") if run.persist else ("intent", "done", "stuck")
    return [entry for entry in reversed(entries) if entry.state in states]


def words(error: BaseException) -> str:
    """The text of an error; the name of its type if it has no text."""
    return str(error) or type(error).__name__
