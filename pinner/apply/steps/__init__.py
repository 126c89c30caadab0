"""The steps of a run: a module for each kind of change compares it with the host, makes it and undoes it. Every
``make`` raises Gone, the errors of Host, and ApplyFailed where another program has changed the target since the plan
was checked (then the host is unchanged) or the kernel grants less. Every ``undo`` returns ``undone``, or ``gone`` or
``stuck`` with the reason; others' changes since stay."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from pinner.apply.ports import Host, Journal
from pinner.apply.steps import affinity, memory, metadata, state
from pinner.apply.steps.affinity import AffinityStep
from pinner.apply.steps.memory import MemoryStep
from pinner.apply.steps.metadata import MetadataStep
from pinner.apply.steps.state import StateStep
from pinner.model.change import (
    AffinityChange,
    Change,
    MemoryChange,
    MetadataChange,
    PlannedChange,
    StateChange,
    is_of_the_host,
)
from pinner.model.run.journal import EARLIER_BOOT, Entry, EntryState

Step = AffinityStep | StateStep | MemoryStep | MetadataStep
"""One change under way. ``entry`` has the threads found so far. ``touched``: the host may have been changed."""


@dataclass(frozen=True, slots=True)
class Inspection:
    is_made: bool
    stale: Callable[[], tuple[str, ...]]
    """What differs from the plan's ``before``; asked only where a change is still to be made."""


def inspect(change: PlannedChange, host: Host) -> Inspection:
    """Raises Gone where the target has ended."""
    match change:
        case AffinityChange():
            threads = host.masks(change.target)
            return Inspection(affinity.is_made(change, threads), partial(affinity.is_stale, change, threads))
        case StateChange():
            now = host.state(change.target)
            return Inspection(state.is_made(change, now), partial(state.is_stale, change, now))
    assert_never(change)


def is_begun(change: Change, host: Host) -> bool:
    """Whether a part of the change is visible. Raises like Host."""
    match change:
        case AffinityChange():
            return affinity.is_begun(change, host.masks(change.target))
        case StateChange():
            return state.is_made(change, host.state(change.target))
        case MemoryChange():
            # Guests allocate and free memory all the time, so the numbers do not show whether the change was begun.
            return False
        case MetadataChange():
            return metadata.is_made(change, host)
    assert_never(change)


def resets_masks(change: Change) -> bool:
    match change:
        case StateChange():
            return is_of_the_host(change.target)
        case AffinityChange() | MemoryChange() | MetadataChange():
            return False
    assert_never(change)


def step(entry: Entry, host: Host, journal: Journal, *, persist: bool, resumed: bool) -> Step:
    """``persist``: in the definition, too. ``resumed``: the change may be made or half made."""
    match entry.change:
        case AffinityChange() as change:
            return AffinityStep(entry, change, host, journal, persist=persist, resumed=resumed)
        case StateChange() as change:
            return StateStep(entry, change, host, journal, resumed=resumed)
        case MemoryChange() as change:
            return MemoryStep(entry, change, host)
        case MetadataChange() as change:
            return MetadataStep(entry, change, host, persist=persist, resumed=resumed)
    assert_never(entry.change)


def undo(
    entry: Entry, host: Host, journal: Journal, *, persist: bool, force: bool = False, under_way: bool = False
) -> tuple[EntryState, str]:
    """``persist``: in the definition, too. ``force``: the change failed just now, so the host's state is its result.
    ``under_way``: the dead process's call may still be running."""
    match entry.change:
        case AffinityChange() as change:
            return affinity.undo(entry, change, host, journal, persist=persist, force=force, repin=under_way)
        case StateChange() as change:
            return state.undo(entry, change, host, force=force, half_made=under_way)
        case MemoryChange() as change:
            return memory.undo(entry, change, host)
        case MetadataChange() as change:
            return metadata.undo(change, host, persist=persist, rewrite=under_way or force)
    assert_never(entry.change)


def undo_earlier_boot(entry: Entry, host: Host, journal: Journal, *, persist: bool) -> tuple[EntryState, str]:
    """``gone``, except what a persistent definition or a saved image still has."""
    match entry.change:
        case AffinityChange() as change:
            return affinity.undo_earlier_boot(entry, change, host, journal, persist=persist)
        case MetadataChange() as change:
            return metadata.undo_earlier_boot(change, host, persist=persist)
        case StateChange() | MemoryChange():
            return "gone", EARLIER_BOOT
    assert_never(entry.change)
