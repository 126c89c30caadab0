"""The masks, states and names of a run that later runs found before their own changes.

A later run may have placed a target of the run again, or a process that had inherited a mask of the run; or it made a
partition, and found the masks of all threads; or it pinned other parts of a guest, and found the names of the run's
pins in the guest's metadata. The undo of that later run restores what it found. So a rollback of the first run alone
also corrects what the journal has of the later ones: nothing of the first run comes back after it. A restart of the
host ends the masks of a first run that has written no definition, so they do not come back after it either.

If another program had moved a target of the run, and a later run moved it back, the rollback of the first run undoes
both changes: the prior mask or state of the later one is that of the first one from then on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pinner.apply.ports import Host, Journal
from pinner.apply.steps.heirs import given_masks, usual
from pinner.apply.steps.metadata import as_started
from pinner.apply.undo.definitions import Definitions
from pinner.model.change import (
    AffinityChange,
    MemoryChange,
    MetadataChange,
    StateChange,
    Target,
    TargetKey,
    ThreadKey,
    ThreadMask,
)
from pinner.model.cpuset import CpuSet
from pinner.model.guest.pins_metadata import restored
from pinner.model.kinds import PINNED, State
from pinner.model.processes.lineage import Lineage, may_inherit_of_guest
from pinner.model.run.journal import Damaged, Entry, InForce, Run


def corrected_later_runs(
    undone: Run, entries: Sequence[Entry], host: Host, journal: Journal, *, earlier_boot: bool
) -> tuple[Entry, ...]:
    """The entries of later runs that found masks, definitions or names which these entries of the run ``undone`` had
    set or handed down, with those that they would have found without the run; and those that set a state of the run
    again.

    A corrected entry does not show that it is one, so the journal gets these entries in one step with the end of the
    rollback: a second correction could take a corrected mask for a mask of the run. ``earlier_boot``: no thread has
    outlived the host's restart, but pins and names have, in definitions and saved images.
    """
    givers = [
        _Giver.of(entry, entry.change, host, earlier_boot=earlier_boot)
        for entry in entries
        if isinstance(entry.change, AffinityChange)
        and entry.change.before
        and (not earlier_boot or entry.change.target.kind in PINNED)
    ]
    names = [
        as_started(entry.change) if earlier_boot and undone.persist else entry.change
        for entry in entries
        if isinstance(entry.change, MetadataChange)
    ]
    states = {} if earlier_boot else _prior_states(entries)
    if not givers and not names and not states:
        return ()
    definitions = Definitions(undone, entries, host)
    later = (each for each in journal.in_force(undone.host, after=undone.id) if isinstance(each, InForce))
    return tuple(_Correction(givers, names, definitions, states).corrected(later))


def _prior_states(entries: Sequence[Entry]) -> dict[TargetKey, State]:
    """The states from before these entries, without those of settings that were gone: these are no changes."""
    changes = (entry.change for entry in entries if entry.state != "gone")
    return {change.target.key: change.before for change in changes if isinstance(change, StateChange)}


def without_ended_masks(undone: Run, entries: Sequence[Entry], host: Host, journal: Journal) -> list[Entry]:
    """The entries of the run ``undone`` with the prior masks that its targets would have had without the masks which
    ended with the host's restart. ``undone`` is a run of an earlier boot that wrote definitions.

    A guest that was started from its definition since has only the masks of runs that wrote definitions, too.
    """
    guests = {entry.change.target.owner for entry in entries}
    older = []
    for each in _made_before(undone, journal):
        change = each.entry.change
        if isinstance(change, AffinityChange) and change.before and change.target.owner in guests:
            older.append((_Giver.of(each.entry, change, host, earlier_boot=True), each.persist))
    return [_without_ended(entry, older[::-1]) for entry in entries]


def _made_before(run: Run, journal: Journal) -> Iterator[InForce]:
    """The changes in force of runs that began before the run."""
    for each in journal.in_force(run.host):
        if isinstance(each, Damaged):
            continue
        if each.entry.run == run.id:
            return
        yield each


def _without_ended(entry: Entry, older: Sequence[tuple["_Giver", bool]]) -> Entry:
    """The entry without the masks that the ``older`` targets, newest first, have only given to running threads. Each
    comes with whether the definition has its mask, too."""
    change = entry.change
    if not isinstance(change, AffinityChange):
        return entry
    before = tuple(_defined(thread, change.target, entry.lineage, older) for thread in change.before)
    return replace(entry, change=replace(change, before=before))


def _defined(
    thread: ThreadMask, target: Target, seen: Lineage | None, older: Sequence[tuple["_Giver", bool]]
) -> ThreadMask:
    """The thread with the mask that its target has in the definition.

    A mask that an older run gave to the target itself was not handed down by another target.
    """
    for position, (giver, persist) in enumerate(older):
        if thread.cpus not in giver.masks:
            continue
        has_own = any(each.target.key == target.key and thread.cpus in each.masks for each, _ in older[position:])
        if giver.target.key == target.key if has_own else giver.handed_down(thread, target, seen):
            if persist:
                return thread
            thread = replace(thread, cpus=giver.usual)
    return thread


@dataclass(frozen=True, slots=True)
class _Giver:
    """A target that handed its mask down to threads which started after ``since``."""

    target: Target
    since: Lineage | None
    masks: frozenset[CpuSet]
    usual: CpuSet
    """The prior mask for threads that inherited one of the ``masks``."""
    prior: Mapping[ThreadKey, CpuSet]
    """The prior masks of the target's own threads."""

    @classmethod
    def of(cls, entry: Entry, change: AffinityChange, host: Host, *, earlier_boot: bool) -> "_Giver":
        own = () if earlier_boot else (*entry.found, *change.before)
        prior = {thread.key: thread.cpus for thread in own}
        masks = given_masks(entry, change, host)
        return cls(change.target, entry.lineage, masks, usual(change.target, change.before), prior)

    def handed_down(self, thread: ThreadMask, target: Target, seen: Lineage | None) -> bool:
        """Whether a thread of ``target``, which a change found at ``seen``, may have inherited a mask."""
        if thread.cpus not in self.masks or self.usual in self.masks:
            return False
        if self.target.kind != "process" or target.kind != "process":
            same = self.target.owner == target.owner and (self.target.kind != target.kind or self.target == target)
            return same and may_inherit_of_guest(thread.started, self.since, seen)
        if seen is None or self.since is None or seen.boot != self.since.boot or thread.started < self.since.since:
            return False
        return "" in (seen.service, self.since.service) or seen.service == self.since.service


class _Correction:
    """Later changes, oldest first, without the masks of these givers, these names, and the pins in definitions. Where
    they change the run's own targets, they have the same result: otherwise the rollback is refused."""

    def __init__(
        self,
        givers: Sequence[_Giver],
        names: Iterable[MetadataChange],
        definitions: Definitions,
        states: Mapping[TargetKey, State],
    ) -> None:
        """``states``: of each target whose state the run changed, the prior one."""
        self._givers = givers
        self._by_target = {giver.target.key: giver for giver in givers}
        self._names = {change.target.key: change for change in names}
        self._definitions = definitions
        self._states = states
        self._own = {key: giver for giver in givers for key in giver.prior}
        self._placed: set[ThreadKey] = set()
        """The threads that later runs have given a mask: an even later run may have found that one."""

    def corrected(self, later: Iterable[InForce]) -> Iterator[Entry]:
        """The entries that differ after the correction."""
        for each in later:
            new = self._entry(self._definitions.without_run(each.entry) if each.persist else each.entry)
            if new != each.entry:
                yield new

    def _entry(self, entry: Entry) -> Entry:
        match change := entry.change:
            case AffinityChange():
                before, found = (
                    tuple(replace(each, cpus=self._prior(each, change.target, entry.lineage)) for each in threads)
                    for threads in (change.before, entry.found)
                )
                self._placed |= {thread.key for thread in (*before, *found)}
                return replace(entry, change=replace(change, before=before), found=found)
            case StateChange():
                masks = tuple(replace(each, cpus=self._own_prior(each)) for each in entry.found)
                state = self._states.get(change.target.key, change.before)
                return replace(entry, change=replace(change, before=state), found=masks)
            case MetadataChange():
                return replace(entry, change=self._named(change))
            case MemoryChange():
                return entry
        assert_never(change)

    def _named(self, change: MetadataChange) -> MetadataChange:
        """The change without the names in what it found. An even later run may have found a name of this change."""
        if (undone := self._names.get(change.target.key)) is None:
            return change
        named_again = {pin.key for pin in change.pins}
        remaining = tuple(pin for pin in undone.pins if pin.key not in named_again)
        self._names[change.target.key] = replace(undone, pins=remaining)
        live = restored(change.live, undone.live, undone.pins)
        if change.target not in self._definitions:
            return replace(change, live=live)
        return replace(change, live=live, definition=restored(change.definition, undone.definition, undone.pins))

    def _prior(self, thread: ThreadMask, target: Target, seen: Lineage | None) -> CpuSet:
        own = self._own.get(thread.key)
        if own is not None and own.target.key == target.key:
            return own.prior[thread.key]
        if thread.key in self._own or thread.key in self._placed:
            return self._own_prior(thread)
        # A new thread of the run's own target has its mask from there, whichever others the run gave the same mask.
        own_target = self._by_target.get(target.key)
        givers = [own_target] if own_target and thread.cpus in own_target.masks else self._givers
        found = (giver.usual for giver in givers if giver.handed_down(thread, target, seen))
        return next(found, thread.cpus)

    def _own_prior(self, thread: ThreadMask) -> CpuSet:
        """The prior mask of a thread that the run itself has moved, where it still had that mask."""
        giver = self._own.get(thread.key)
        is_ours = giver is not None and thread.cpus in giver.masks and thread.key not in self._placed
        return giver.prior[thread.key] if giver is not None and is_ours else thread.cpus
