"""The entries of later runs, without the masks, states, definitions and names of a run that is rolled back (rule 4 of
pinner.apply.undo).

Where a later run moved back a target that another program had moved, the rollback of the first run undoes both: the
later one then has the first one's prior mask or state."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from pinner.apply.ports import Host, Journal
from pinner.apply.steps.inheritors import given_masks, prior_mask
from pinner.apply.steps.metadata import as_started
from pinner.model.change import (
    AffinityChange,
    MemoryChange,
    MetadataChange,
    StateChange,
    Target,
    TargetKey,
    ThreadKey,
    ThreadMask,
    boots_differ,
)
from pinner.model.cpuset import CpuSet
from pinner.model.guest.pins_metadata import restored
from pinner.model.kinds import PINNED
from pinner.model.machine.process import Lineage, main_thread, may_inherit_of_guest, may_start_threads_of
from pinner.model.run.journal import Damaged, Entry, InForce, Run
from pinner.model.states import State


def corrected_later_runs(
    to_undo: Run, entries: Sequence[Entry], host: Host, journal: Journal, *, earlier_boot: bool
) -> tuple[Entry, ...]:
    """The journal gets them with the rollback's end: a second correction could take a corrected mask for the run's."""
    sources = [
        _Source.of(entry, entry.change, host)
        for entry in entries
        if isinstance(entry.change, AffinityChange)
        and entry.change.before
        and (not earlier_boot or entry.change.target.kind in PINNED)
    ]
    names = [
        as_started(entry.change) if earlier_boot and to_undo.persist else entry.change
        for entry in entries
        if isinstance(entry.change, MetadataChange)
    ]
    states = {} if earlier_boot else _prior_states(entries)
    if not sources and not names and not states:
        return ()
    definitions = Definitions(to_undo, entries, host)
    later = (record for record in journal.in_force(to_undo.host, after=to_undo.id) if isinstance(record, InForce))
    return tuple(_Correction(sources, names, definitions, states, to_undo.boot).corrected(later))


def _prior_states(entries: Sequence[Entry]) -> dict[TargetKey, State]:
    changes = (entry.change for entry in entries if entry.state != "gone")
    return {change.target.key: change.before for change in changes if isinstance(change, StateChange)}


def without_ended_masks(to_undo: Run, entries: Sequence[Entry], host: Host, journal: Journal) -> list[Entry]:
    """The entries of a ``persist`` run of an earlier boot without prior masks that the restart ended: a guest started
    from its definition has only the masks of runs that wrote definitions."""
    guests = {entry.change.target.owner for entry in entries}
    older = []
    for record in _made_before(to_undo, journal):
        change = record.entry.change
        if isinstance(change, AffinityChange) and change.before and change.target.owner in guests:
            older.append((_Source.of(record.entry, change, host), record.persist))
    return [_without_ended(entry, older[::-1], host) for entry in entries]


def _made_before(run: Run, journal: Journal) -> Iterator[InForce]:
    for record in journal.in_force(run.host):
        if isinstance(record, Damaged):
            continue
        if record.entry.run == run.id:
            return
        yield record


def _without_ended(entry: Entry, older: Sequence[tuple["_Source", bool]], host: Host) -> Entry:
    """``older``: newest first, each with whether the definition has its mask, too."""
    change = entry.change
    if not isinstance(change, AffinityChange):
        return entry
    if change.target.kind in PINNED and (pin := host.defined_pin(change.target, entry.definition)):
        before = tuple(replace(thread, cpus=pin) for thread in change.before)
    else:
        main = main_thread(change.target, change.before)
        before = tuple(_defined(thread, change.target, entry.lineage, older, main) for thread in change.before)
    return replace(entry, change=replace(change, before=before))


def _defined(
    thread: ThreadMask,
    target: Target,
    seen: Lineage | None,
    older: Sequence[tuple["_Source", bool]],
    main: ThreadKey | None,
) -> ThreadMask:
    """The thread with its target's mask in the definition. Its target is its first source, the only one of ``main``."""
    for position, (source, persist) in enumerate(older):
        if thread.cpus not in source.masks:
            continue
        has_own = any(other.target.key == target.key and thread.cpus in other.masks for other, _ in older[position:])
        only_own = has_own or thread.key == main
        if source.target.key == target.key if only_own else source.may_have_given(thread, target, seen):
            if persist:
                return thread
            thread = replace(thread, cpus=source.prior_mask)
    return thread


@dataclass(frozen=True, slots=True)
class _Source:
    """A target that got ``masks``, which threads started after ``since`` may have inherited."""

    target: Target
    since: Lineage | None
    masks: frozenset[CpuSet]
    prior_mask: CpuSet
    own: Mapping[ThreadKey, CpuSet]

    @classmethod
    def of(cls, entry: Entry, change: AffinityChange, host: Host) -> "_Source":
        own = {thread.key: thread.cpus for thread in (*entry.found, *change.before)}
        masks = given_masks(entry, change, host)
        return cls(change.target, entry.lineage, masks, prior_mask(change.target, change.before), own)

    def may_have_given(self, thread: ThreadMask, target: Target, seen: Lineage | None) -> bool:
        """``seen``: of the change that found the thread of ``target``."""
        if thread.cpus not in self.masks or self.prior_mask in self.masks:
            return False
        if self.target.kind != "process" or target.kind != "process":
            starts = self.target == target or may_start_threads_of(self.target, target)
            return starts and may_inherit_of_guest(thread.started, self.since, seen)
        if seen is None or self.since is None or seen.boot != self.since.boot or thread.started < self.since.since:
            return False
        return "" in (seen.service, self.since.service) or seen.service == self.since.service


def last_of_others(known: str, seen: str, written: Collection[CpuSet], target: Target, host: Host) -> str:
    """The definition that a run has ``seen``; ``known`` if earlier runs had ``written`` the target's pin there."""
    return known if host.defined_pin(target, seen) in written else seen


class Definitions:
    """The definitions that targets of one run would have without it. Later runs come oldest first."""

    def __init__(self, run: Run, entries: Iterable[Entry], host: Host) -> None:
        self._host = host
        self._first = {entry.change.target.key: entry for entry in entries if run.persist}
        self._last: dict[TargetKey, str] = {}

    def __contains__(self, target: Target) -> bool:
        return target.key in self._first

    def without_run(self, later: Entry) -> Entry:
        target = later.change.target
        first = self._first.get(target.key)
        if first is None or not isinstance(first.change, AffinityChange) or target.kind not in PINNED:
            return later
        known = self._last.get(target.key, first.definition)
        # A later run that gave the target other CPUs has been rolled back, or the rollback of the run is refused.
        self._last[target.key] = last_of_others(known, later.definition, (first.change.after,), target, self._host)
        return replace(later, definition=self._last[target.key])

    def of_run(self, entry: Entry) -> Entry:
        return replace(entry, definition=self._last.get(entry.change.target.key, entry.definition))


class _Correction:
    """Oldest first. Changes of the run's own targets have the same result: otherwise the rollback is refused."""

    def __init__(
        self,
        sources: Sequence[_Source],
        names: Iterable[MetadataChange],
        definitions: Definitions,
        states: Mapping[TargetKey, State],
        boot: str,
    ) -> None:
        """``boot``: of the run."""
        self._sources = sources
        self._by_target = {source.target.key: source for source in sources}
        self._names = {change.target.key: change for change in names}
        self._definitions = definitions
        self._states = states
        self._boot = boot
        self._own = {key: source for source in sources for key in source.own}
        self._placed: set[ThreadKey] = set()
        self._given: dict[TargetKey, set[CpuSet]] = {}

    def corrected(self, later: Iterable[InForce]) -> Iterator[Entry]:
        for change in later:
            if boots_differ(change.boot, self._boot):
                self._own = {}  # other threads may have the same ids and start times
            entry = self._entry(self._definitions.without_run(change.entry) if change.persist else change.entry)
            if entry != change.entry:
                yield entry

    def _entry(self, entry: Entry) -> Entry:
        match change := entry.change:
            case AffinityChange():
                main = main_thread(change.target, (*change.before, *entry.found))
                prior = partial(self._prior, target=change.target, seen=entry.lineage, main=main)
                before, masks = (
                    tuple(replace(thread, cpus=prior(thread)) for thread in threads)
                    for threads in (change.before, entry.found)
                )
                self._placed |= {thread.key for thread in (*before, *masks)}
                self._given.setdefault(change.target.key, set()).add(change.after)
                return replace(entry, change=replace(change, before=before), found=masks)
            case StateChange():
                masks = tuple(replace(thread, cpus=self._own_prior(thread)) for thread in entry.found)
                state = self._states.get(change.target.key, change.before)
                return replace(entry, change=replace(change, before=state), found=masks)
            case MetadataChange():
                return replace(entry, change=self._named(change))
            case MemoryChange():
                return entry
        assert_never(change)

    def _named(self, change: MetadataChange) -> MetadataChange:
        if (undone := self._names.get(change.target.key)) is None:
            return change
        named_again = {pin.key for pin in change.pins}
        remaining = tuple(pin for pin in undone.pins if pin.key not in named_again)
        self._names[change.target.key] = replace(undone, pins=remaining)
        former = restored(change.former, undone.former, undone.pins)
        live = restored(change.live, undone.live, undone.pins)
        if change.target not in self._definitions:
            return replace(change, live=live, former=former)
        definition = restored(change.definition, undone.definition, undone.pins)
        return replace(change, live=live, definition=definition, former=former)

    def _prior(self, thread: ThreadMask, target: Target, seen: Lineage | None, main: ThreadKey | None) -> CpuSet:
        own = self._own.get(thread.key)
        if own is not None and own.target.key == target.key:
            return own.own[thread.key]
        if thread.key in self._own or thread.key in self._placed:
            return self._own_prior(thread)
        if thread.cpus in self._given.get(target.key, ()):
            return thread.cpus
        # A new thread of the run's own target has its mask from there, whichever others the run gave the same mask.
        own_target = self._by_target.get(target.key)
        others = () if thread.key == main else self._sources
        sources = [own_target] if own_target and thread.cpus in own_target.masks else others
        prior = (source.prior_mask for source in sources if source.may_have_given(thread, target, seen))
        return next(prior, thread.cpus)

    def _own_prior(self, thread: ThreadMask) -> CpuSet:
        source = self._own.get(thread.key)
        if source is None or thread.cpus not in source.masks or thread.key in self._placed:
            return thread.cpus
        return source.own[thread.key]


def with_pins_of_others(run: Run, entries: Sequence[Entry], host: Host, journal: Journal) -> list[Entry]:
    definitions = Definitions(run, entries, host)
    for record in journal.in_force(run.host, after=run.id) if run.persist else ():
        if isinstance(record, InForce) and record.persist:
            definitions.without_run(record.entry)
    return [definitions.of_run(entry) for entry in entries]
