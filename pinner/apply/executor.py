"""Applies a plan: the host ends as planned or as it was. And takes an applied run back.

Every change is journaled with the prior masks before it is made, and read back from the kernel after it. The journal
keeps two runs apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from pinner.apply import freshness
from pinner.apply.memory import MemoryMove, memory_changes
from pinner.apply.move import Move
from pinner.apply.ports import Host, Journal
from pinner.apply.setting import Setting
from pinner.apply.undo import take_back
from pinner.model.errors import Gone, PinnerError, RunConflict
from pinner.model.journal import Entry, EntryState, Run, RunState
from pinner.model.memory import MemoryChange
from pinner.model.plan import SETTINGS, Change, Plan

Progress = Callable[[Entry, int], None]
"""Called with an entry and how many entries the run has: once when the run is in the journal and nothing is touched
yet, then after every change. It must not raise."""


class _Ledger:
    """Tells the journal and the caller what has become of one run's entries."""

    def __init__(
        self, run: Run, journal: Journal, now: Callable[[], datetime], progress: Progress, entries: Sequence[Entry]
    ) -> None:
        """The run has just begun."""
        self._run = run
        self._journal = journal
        self._now = now
        self._progress = progress
        self._total = len(entries)
        for entry in entries[:1]:
            progress(entry, self._total)

    def note(self, entry: Entry, state: EntryState, error: str = "") -> Entry:
        """Record the entry's new state."""
        noted = replace(entry, state=state, error=error, at=self._now())
        self._journal.note(noted)
        self._progress(noted, self._total)
        return noted

    def close(self, state: RunState, error: str = "") -> Run:
        """End the run."""
        ended = replace(self._run, state=state, error=error, ended_at=self._now())
        self._journal.end(ended)
        return ended


def apply(plan: Plan, run: Run, host: Host, journal: Journal, now: Callable[[], datetime], progress: Progress) -> Run:
    """Make the plan so; the run that comes back is ``applied``, ``undone``, or ``failed`` where an undo got stuck.

    A guest or process that ends meanwhile is ``gone``, and the others go on. Raises Blocked, StalePlan, Invalid and
    HostBusy before anything is touched.
    """
    changes: tuple[Change | MemoryChange, ...] = freshness.check(plan, host, persist=run.persist)
    if run.migrate_memory:
        # Last, so that what the guests allocate meanwhile lies where their vCPUs already are.
        changes += memory_changes(plan, host)
    entries = _intents(changes, run, host, now())
    journal.begin(run, entries)
    ledger = _Ledger(run, journal, now, progress, entries)
    ended: list[Entry] = []
    for position, entry in enumerate(entries):
        move = _move(entry, run, host, journal)
        try:
            ended.append(_make(move, ledger))
        except BaseException as error:  # whatever it is, Ctrl-C too: the host must not stay half moved
            closed = _give_up(move, error, ended, entries[position + 1 :], run, host, ledger)
            if isinstance(error, PinnerError):
                return closed
            raise
    return ledger.close("applied")


def rollback(run: Run, host: Host, journal: Journal, now: Callable[[], datetime], progress: Progress) -> Run:
    """Take back the run named ``run.undoes``, its changes in reverse order.

    What somebody else has moved since is left and listed: both runs are ``rolled_back_partly`` then, and it can be
    asked for again. Raises NotFound, RunConflict, HostBusy.
    """
    _require_reversible(journal.run(run.undoes))
    journal.begin(run, ())
    # Again under the journal's lock: another rollback of it may have ended just before.
    undone = journal.run(run.undoes)
    try:
        _require_reversible(undone)
        entries = [entry for entry in reversed(journal.entries(undone.id)) if _may_hold(entry, persist=undone.persist)]
        ledger = _Ledger(run, journal, now, progress, entries)
        states = [ledger.note(entry, *take_back(entry, host, persist=undone.persist)).state for entry in entries]
    except BaseException as error:
        journal.end(replace(run, state="failed", error=_words(error), ended_at=now()))
        raise
    stuck = states.count("stuck")
    state: RunState = "rolled_back_partly" if stuck else "rolled_back"
    return ledger.close(state, f"{stuck} of {len(entries)} changes could not be taken back" if stuck else "")


def _intents(changes: tuple[Change | MemoryChange, ...], run: Run, host: Host, at: datetime) -> tuple[Entry, ...]:
    guests = {change.target.owner for change in changes if run.persist and change.target.kind in freshness.PINNED}
    definitions = {guest: host.definition(guest) for guest in guests}
    return tuple(
        Entry(run.id, seq, change, "intent", at, definition=definitions.get(change.target.owner, ""))
        for seq, change in enumerate(changes, start=1)
    )


def _move(entry: Entry, run: Run, host: Host, journal: Journal) -> Move | MemoryMove | Setting:
    if isinstance(entry.change, MemoryChange):
        return MemoryMove(entry, entry.change, host)
    if entry.change.target.kind in SETTINGS:
        return Setting(entry, entry.change, host, journal)
    return Move(entry, entry.change, host, journal, persist=run.persist)


def _make(move: Move | MemoryMove | Setting, ledger: _Ledger) -> Entry:
    try:
        move.make()
    except Gone as error:
        return ledger.note(move.entry, "gone", str(error))
    return ledger.note(move.entry, "done")


def _give_up(
    move: Move | MemoryMove | Setting,
    error: BaseException,
    ended: list[Entry],
    rest: tuple[Entry, ...],
    run: Run,
    host: Host,
    ledger: _Ledger,
) -> Run:
    """Put everything back as it was, the failed change first. Only then write it down: the host comes before its
    record, which has known every prior mask since the change was begun."""
    state, why = take_back(move.entry, host, persist=run.persist, force=True) if move.touched else ("undone", "")
    failed = "; but its undo: ".join(filter(None, (_words(error), why)))
    outcomes: list[tuple[Entry, EntryState, str]] = [(move.entry, "stuck" if state == "stuck" else "failed", failed)]
    made = [entry for entry in reversed(ended) if _may_hold(entry, persist=run.persist)]
    outcomes += [(entry, *take_back(entry, host, persist=run.persist)) for entry in made]
    outcomes += [(entry, "undone", "not made: a change before it failed") for entry in rest]
    states = [ledger.note(*outcome).state for outcome in outcomes]
    return ledger.close("failed" if "stuck" in states else "undone", _words(error))


def _may_hold(entry: Entry, *, persist: bool) -> bool:
    """Whether the entry may still hold something that was otherwise; of a guest that is gone, its definition."""
    return entry.state in ("intent", "done", "stuck") or (persist and entry.state == "gone")


def _require_reversible(run: Run) -> None:
    if run.kind == "rollback":
        raise RunConflict(run.id, "a rollback itself", "apply its plan again to take it back")
    if run.state not in ("applied", "failed", "rolled_back_partly"):
        raise RunConflict(run.id, run.state, "only a run that has ended with changes in place can be rolled back")


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
