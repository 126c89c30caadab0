"""Which runs the journal keeps for an undo: those with a change in place on a live target or inheritor, and those from
which other runs have prior masks."""

from collections.abc import Iterable
from datetime import datetime
from typing import assert_never

from pinner.apply.ports import Host, Journal
from pinner.apply.steps import state
from pinner.apply.steps.masks import given_masks
from pinner.apply.steps.metadata import is_saved, keeps_pins
from pinner.apply.undo.all_runs import source_runs
from pinner.apply.undo.undoing import undoable
from pinner.model.change import AffinityChange, MemoryChange, MetadataChange, StateChange
from pinner.model.errors import Gone, PinnerError
from pinner.model.run.journal import Entry, Run


def purge(journal: Journal, before: datetime, host: Host, name: str, boot: str = "") -> int:
    """Delete the runs that began before a moment and that no undo needs; returns their number. A run with a damaged
    record stays. ``name``: the host's. Raises StoreUnavailable."""

    def is_kept(run: str) -> bool:
        entries, damaged = journal.readable_entries(run)
        return bool(damaged) or can_be_undone(journal.run(run), entries, host, boot)

    return journal.purge(before, is_kept, lambda ended: source_runs(ended, journal.in_force(name), boot, host))


def can_be_undone(run: Run, entries: Iterable[Entry], host: Host, boot: str = "") -> bool:
    """Whether a change is in place on a live target or inheritor, or in a definition, which outlives its guest."""
    in_place = undoable(run, tuple(entries))
    if run.is_of_earlier_boot(boot) and not run.persist:
        pinned = {entry.change.target.owner for entry in in_place if isinstance(entry.change, MetadataChange)}
        return any(keeps_pins(guest, host) for guest in pinned)
    return (run.persist and bool(in_place)) or any(not _has_ended(entry, host) for entry in in_place)


def _has_ended(entry: Entry, host: Host) -> bool:
    try:
        match entry.change:
            case AffinityChange(target=target):
                host.masks(target)
            case StateChange(target=target):
                host.state(target)
            case MemoryChange(target=target):
                host.memory(target)
            case MetadataChange(target=target):
                # Of a running guest, the names mean nothing without a pin that is in place.
                return not is_saved(target.owner, host)
    except Gone:
        return not _has_left_masks(entry, host)
    except PinnerError:
        return False  # not known
    return False


def _has_left_masks(entry: Entry, host: Host) -> bool:
    match entry.change:
        case AffinityChange() as change:
            if entry.lineage is None:
                return False
            return host.has_inheritors(change.target, entry.lineage, given_masks(entry, change, host))
        case StateChange() as change:
            return state.has_left_masks(entry, change, host)
        case MemoryChange() | MetadataChange():
            return False
    assert_never(entry.change)
