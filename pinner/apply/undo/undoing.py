"""Undoes the entries of a run: for a rollback, or for the recovery of an interrupted apply."""

import logging
from collections.abc import Collection, Iterable, Sequence

from pinner.apply import steps
from pinner.apply.notes import Notes, losses, unanswering, unreadable, words
from pinner.apply.ports import Host, Journal
from pinner.apply.side_by_side import with_busy_last
from pinner.apply.undo.later_runs import with_pins_of_others, without_ended_masks
from pinner.model.change import are_independent
from pinner.model.kinds import DEFINED, KINDS
from pinner.model.run.journal import Damaged, Entry, EntryState, Run

INTERRUPTED = "interrupted: the process that carried it out died"

LOG = logging.getLogger(__name__)


def undoable(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """The entries that an undo may still need, in reverse, late ones at the end: irqbalance moves interrupts as soon as
    it gets other CPUs. Of gone targets, only a guest's definition is restored, once: others may have changed it."""
    restored = run.state in ("rolled_back", "rolled_back_partly")
    gone = DEFINED if run.persist and not restored else ()
    needed = [
        entry
        for entry in reversed(entries)
        if entry.state in ("intent", "done", "stuck") or (entry.state == "gone" and entry.change.target.kind in gone)
    ]
    return sorted(needed, key=lambda entry: KINDS[entry.change.target.kind].is_late)


def with_prior_facts(
    to_undo: Run, entries: Iterable[Entry], host: Host, journal: Journal, *, earlier_boot: bool
) -> list[Entry]:
    restored = with_pins_of_others(to_undo, tuple(entries), host, journal)
    return without_ended_masks(to_undo, restored, host, journal) if earlier_boot and to_undo.persist else restored


class Undoing:
    """Its run is open in the journal."""

    def __init__(
        self, notes: Notes, entries: Sequence[Entry], host: Host, changes: int, *, earlier_boot: bool = False
    ) -> None:
        """``entries`` of the run's ``changes`` are undone."""
        self._notes = notes
        self._run = notes.run
        self._entries = entries
        self._changes = changes
        self._host = host
        self._earlier_boot = earlier_boot
        self._at_once = host.guests_at_once if are_independent(entry.change for entry in entries) else 1
        for entry in entries[:1]:  # a rollback of all runs may have none
            notes.begin(entry)

    def undo(self, *, under_way: Collection[int], damaged: Sequence[Damaged] = ()) -> Run:
        """Undo an interrupted apply; it ends ``undone`` or ``failed``. ``under_way``: the ``seq`` of changes that a
        call of the dead process may still make."""
        lost = [entry for entry in self._undo_all(self._run.persist, under_way, ()) if entry.state == "stuck"]
        error = (INTERRUPTED, self._losses(lost), unreadable(damaged))
        return self._notes.close("failed" if lost or damaged else "undone", "; ".join(filter(None, error)))

    def roll_back(self, *, persist: bool, under_way: Collection[int] = (), damaged: Sequence[Damaged] = ()) -> Run:
        """Undo another run, or all runs. In a rollback of all runs, an ended target is no loss; one that a damaged
        record may concern gets its first known masks or state, and is a loss."""
        unsure = damaged if self._run.undoes_all else ()
        lost = [
            noted
            for entry, noted in zip(self._entries, self._undo_all(persist, under_way, unsure), strict=True)
            if noted.state == "stuck" or (noted.state == "gone" and entry.state != "gone" and not self._run.undoes_all)
        ]
        error = "; ".join(filter(None, (self._losses(lost), unreadable(damaged))))
        return self._notes.close("rolled_back_partly" if error else "rolled_back", error)

    def _losses(self, lost: Sequence[Entry]) -> str:
        return losses(lost, self._changes, self._changes - len(self._entries))

    def _undo_all(self, persist: bool, under_way: Collection[int], unsure: Collection[Damaged]) -> list[Entry]:
        """An unforeseen error ends the run as ``failed`` and is raised, except in a recovery."""
        unforeseen: list[Exception] = []

        def undo(entry: Entry) -> None:
            try:
                state, why = self._undo_one(entry, persist or entry.definition != "", entry.seq in under_way)
            except Exception as error:  # the other changes are still undone, then it is raised
                unforeseen.append(error)
                state, why = "stuck", f"{entry.change.target}: {words(error)}"
            if state != "gone" and (record := _concerning(entry, unsure)):
                problem = f"{entry.change.target} has its first known masks or state, but {record} is damaged"
                state, why = "stuck", "; ".join(filter(None, (why, problem)))
            self._notes.note(entry, state, why)

        with_busy_last(self._entries, undo, unanswering(self._entries, self._host, {}), self._at_once)
        for error in unforeseen:
            if not self._notes.resumed:
                self._notes.close("failed", words(error))
                raise error
            # Raised again, it would keep the run open, and every later run would be refused.
            LOG.error("recovery of run %s: %s", self._run.id, words(error), exc_info=error)
        return [self._notes.latest[entry.seq] for entry in self._entries]

    def _undo_one(self, entry: Entry, persist: bool, under_way: bool) -> tuple[EntryState, str]:
        journal = self._notes.journal
        if self._earlier_boot:
            return steps.undo_earlier_boot(entry, self._host, journal, persist=persist)
        return steps.undo(entry, self._host, journal, persist=persist, under_way=under_way)


def _concerning(entry: Entry, unsure: Collection[Damaged]) -> Damaged | None:
    return next((record for record in unsure if record.may_concern(entry.change.target)), None)
