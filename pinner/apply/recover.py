"""Recovers a run that a kill, a power failure or an unwritable journal interrupted. The journal may be older than the
host, so recovery reads the kernel."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Literal

from pinner.apply import steps
from pinner.apply.notes import Notes, reported
from pinner.apply.ports import Host, Journal
from pinner.apply.side_by_side import parts_of
from pinner.apply.transaction import Transaction
from pinner.apply.undo.all_runs import damaged_in_force, whole_undo
from pinner.apply.undo.later_runs import corrected_later_runs
from pinner.apply.undo.undoing import Undoing, undoable, with_prior_facts
from pinner.model.change import are_independent, group_of
from pinner.model.kinds import SETTINGS
from pinner.model.run.journal import UNDO_BEGUN, Damaged, Entry, Run

RecoveryPolicy = Literal["back", "forward"]
"""Whether an interrupted apply is undone or finished; a rollback is always finished."""


def recover(
    host: Host, journal: Journal, policy: RecoveryPolicy, now: Callable[[], datetime], boot: str = ""
) -> Run | None:
    """A run of another boot, or with a damaged record, is undone. Raises StoreUnavailable: the run stays open."""
    run = journal.interrupted()
    if run is None:
        return None
    try:
        return _resolve(run, host, journal, policy, now, boot)
    finally:
        journal.leave(run)


def _resolve(
    run: Run, host: Host, journal: Journal, policy: RecoveryPolicy, now: Callable[[], datetime], boot: str
) -> Run:
    to_undo = journal.run(run.undoes) if run.undoes else run
    earlier = to_undo.is_of_earlier_boot(boot)

    def undoing(due: Sequence[Entry], corrected: Sequence[Entry] = ()) -> Undoing:
        known = reported(run, due)
        notes = Notes(run, len(due), journal, now, lambda *_: None, resumed=True, corrected=corrected, reported=known)
        return Undoing(notes, due, host, len(entries), earlier_boot=earlier)

    entries, damaged = journal.readable_entries(to_undo.id)
    if run.undoes_all:
        entries, damaged = _of_all_runs(run, entries, damaged, host, journal, now, boot)
        under_way = _under_way(entries, host)
        return undoing(undoable(run, entries)).roll_back(persist=False, under_way=under_way, damaged=damaged)
    # Where all changes belong together, an entry of UNDO_BEGUN shows that the undo of all had begun, and recovery
    # finishes the undo. Without entries the apply had changed nothing.
    independent = not run.all_or_nothing and are_independent(entry.change for entry in entries)
    # A setting that failed alone does not show that; the change that failed is noted before the undo of all others.
    settings = () if run.all_or_nothing else SETTINGS
    begun = any(entry.state in UNDO_BEGUN and entry.change.target.kind not in settings for entry in entries)
    forward = run.kind == "apply" and policy == "forward" and not earlier and not damaged
    if forward and entries and (independent or not begun):
        return Transaction(run, entries, host, journal, now, lambda *_: None, resumed=True).make()
    entries = tuple(with_prior_facts(to_undo, entries, host, journal, earlier_boot=earlier))
    under_way = frozenset() if earlier else _under_way(entries, host)
    # A half-made change of a state is undone first: it may have widened the masks that the later changes set.
    first = [entry.seq for entry in entries if entry.seq in under_way and steps.resets_masks(entry.change)]
    due = sorted(undoable(to_undo, entries), key=lambda entry: entry.seq not in first)
    if to_undo is run:
        return undoing(due).undo(under_way=under_way, damaged=damaged)
    corrected = corrected_later_runs(to_undo, _rolled_back(entries), host, journal, earlier_boot=earlier)
    return undoing(due, corrected).roll_back(persist=to_undo.persist, under_way=under_way, damaged=damaged)


def _of_all_runs(
    run: Run,
    entries: tuple[Entry, ...],
    damaged: tuple[Damaged, ...],
    host: Host,
    journal: Journal,
    now: Callable[[], datetime],
    boot: str,
) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
    if entries or damaged:
        return entries, damaged + damaged_in_force(journal.in_force(run.host), boot)
    whole = whole_undo(replace(run, boot=boot), journal.in_force(run.host), now(), host)
    journal.intend(*whole.entries)
    return whole.entries, whole.damaged


def _rolled_back(entries: Sequence[Entry]) -> list[Entry]:
    """Last one first; the apply itself has undone the groups that failed."""
    failed = {group_of(entry.change.target) for entry in entries if entry.state == "failed"}
    return [
        entry
        for entry in reversed(entries)
        if entry.state != "failed" and not (entry.state == "undone" and group_of(entry.change.target) in failed)
    ]


def _under_way(entries: Sequence[Entry], host: Host) -> frozenset[int]:
    """The ``seq`` of changes for which libvirtd may still have a call of the dead process: a guest's last visible
    change and the next one; all of a failed group."""
    failed = {group_of(entry.change.target) for entry in entries if entry.state in UNDO_BEGUN}
    alive = [entry for entry in entries if entry.state in ("intent", "done", "stuck")]
    in_order = [entry for entry in alive if group_of(entry.change.target) not in failed]
    independent = are_independent(entry.change for entry in entries)
    around = {
        entry.seq for part in (parts_of(in_order) if independent else [in_order]) for entry in _around(part, host)
    }
    return frozenset(entry.seq for entry in alive if entry.seq in around or group_of(entry.change.target) in failed)


def _around(part: Sequence[Entry], host: Host) -> Sequence[Entry]:
    last = max((position for position, entry in enumerate(part) if _is_begun(entry, host)), default=-1)
    return part[max(last, 0) : last + 2]


def _is_begun(entry: Entry, host: Host) -> bool:
    with suppress(Exception):  # also unforeseen ones: the undo of the entry names them
        return steps.is_begun(entry.change, host)
    return False
