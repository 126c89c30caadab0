"""The history of each target: all its changes in force as one (rules 3 and 5 of pinner.apply.undo); and which runs an
undo needs.

The source of an inheritor is its own target, if a run gave it the mask; else the oldest other target that had the mask
when the thread started: a part of the same guest, or a process, if possible of the same service."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from pinner.apply.ports import Host, Journal
from pinner.apply.steps import metadata, state
from pinner.apply.steps.affinity import of_no_thread
from pinner.apply.steps.inheritors import given_masks, prior_mask
from pinner.apply.steps.metadata import is_saved, keeps_pins
from pinner.apply.undo.later_runs import last_of_others
from pinner.apply.undo.undoing import undoable
from pinner.model.change import (
    AffinityChange,
    Change,
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
from pinner.model.errors import Gone, PinnerError
from pinner.model.kinds import DEFINED, PINNED
from pinner.model.machine.process import Lineage, main_thread, may_inherit_of_guest, may_start_threads_of
from pinner.model.run.journal import IN_PART, Damaged, Entry, InForce, Run
from pinner.model.states import cpus_of

NO_PINS = "<cputune/>"


@dataclass(frozen=True, slots=True)
class WholeUndo:
    entries: tuple[Entry, ...]
    damaged: tuple[Damaged, ...] = ()
    """They are not undone."""


def whole_undo(run: Run, changed: Iterable[InForce | Damaged], at: datetime, host: Host) -> WholeUndo:
    """The entries of a rollback of all runs in _ORDER; they are undone in reverse. ``changed``: oldest first."""
    histories = _Histories(changed, run.boot, host)
    changes = sorted(histories.entries(), key=lambda entry: _ORDER[entry.change.kind])
    entries = tuple(replace(entry, run=run.id, seq=seq, at=at) for seq, entry in enumerate(changes, start=1))
    return WholeUndo(entries, tuple(histories.damaged))


def damaged_in_force(changed: Iterable[InForce | Damaged], boot: str) -> tuple[Damaged, ...]:
    return tuple(change for change in changed if isinstance(change, Damaged) and not change.has_ended(boot))


def source_runs(ended: Collection[str], changed: Iterable[InForce | Damaged], boot: str, host: Host) -> frozenset[str]:
    """Those of the ``ended`` runs that changed a target of another run, or a source of its threads."""
    return _Histories(changed, boot, host).needed_runs(ended) & frozenset(ended)


_ORDER = {"metadata": 0, "affinity": 1, "state": 2, "memory": 3}


@dataclass(slots=True, eq=False)
class _History:
    first: Entry
    last: Entry
    definition: str = ""
    """With the last pin of an operator."""
    written: set[CpuSet] = field(default_factory=set)
    masks: dict[ThreadKey, ThreadMask] = field(default_factory=dict)
    """Each thread's mask before pinner first touched it."""
    inherited: dict[ThreadKey, tuple[ThreadMask, tuple["_History", ...]]] = field(default_factory=dict)
    """The threads whose first known mask is pinner's, with possible sources beside the target."""
    inheritors: dict[ThreadKey, ThreadMask] = field(default_factory=dict)
    """Threads of other targets, as undos found them."""
    lineage: Lineage | None = None
    """Of the first change; of a guest, the first one since it started."""
    names: MetadataChange | None = None
    given: dict[CpuSet, None] = field(default_factory=dict)
    """The CPUs that runs gave to the target, the last run's last."""
    runs: set[str] = field(default_factory=set)
    sources: list["_History"] = field(default_factory=list)
    """The oldest source of each ``inherited`` thread, once prior masks are known."""

    def lineage_with(self, latest: Lineage | None, threads: Iterable[ThreadMask]) -> Lineage | None:
        """The ``latest`` one where all ``threads`` are new: of the first change, or since the guest has started. A
        guest with an earlier run's pin in its definition has that mask from its start."""
        known = {*self.masks, *self.inherited}
        has_other_threads = known.isdisjoint(thread.key for thread in threads)
        restarts = self.first.change.target.kind != "process" and not self.written and has_other_threads
        return latest if restarts or not known else self.lineage

    def give(self, cpus: CpuSet) -> None:
        self.given.pop(cpus, None)
        self.given[cpus] = None


@dataclass(slots=True)
class _Holder:
    """A target that got a mask."""

    history: _History
    since: Lineage | None
    """Of the first change that gave it."""
    until: Lineage | None = None
    """Of the change that then gave another one."""

    def had_it(self, started: int, seen: Lineage | None) -> bool:
        """Whether it still had the mask when a thread started that was ``seen`` then."""
        if self.until is None or seen is None:
            return True
        return seen.boot == self.until.boot and started < self.until.since


class _Histories:
    def __init__(self, changed: Iterable[InForce | Damaged], boot: str, host: Host) -> None:
        self.damaged: list[Damaged] = []
        self._host = host
        self._histories: dict[TargetKey, _History] = {}
        self._holders: dict[CpuSet, dict[TargetKey, _Holder]] = {}
        for record in changed:
            if isinstance(record, Damaged):
                self.damaged += [] if record.has_ended(boot) else [record]
                continue
            earlier = boots_differ(record.boot, boot)
            if not earlier or record.entry.change.target.kind in DEFINED:
                self._add(record.entry, persist=record.persist, earlier_boot=earlier)

    def _add(self, entry: Entry, *, persist: bool, earlier_boot: bool) -> None:
        change = entry.change
        history = self._histories.setdefault(change.target.key, _History(entry, entry))
        history.last = entry
        history.runs.add(entry.run)
        if isinstance(change, MetadataChange):
            history.names = self._names(history, change, persist=persist, earlier_boot=earlier_boot)
        match change:
            case AffinityChange():
                threads = (*change.before, *entry.found)
                history.lineage = history.lineage_with(entry.lineage, threads)
                main = main_thread(change.target, threads)
                for thread in threads:
                    noted = of_no_thread(thread) if earlier_boot else thread
                    if noted.key in history.masks or noted.key in history.inherited:
                        continue
                    is_own = thread.key == main or thread.cpus in history.given
                    sources = () if is_own else tuple(self._sources_of(thread, history, entry.lineage))
                    if thread.cpus in history.given or sources:
                        history.inherited[noted.key] = noted, sources
                    else:
                        history.masks[noted.key] = noted
                self._hold(change, history, entry.lineage)
            case StateChange():
                history.masks = {thread.key: thread for thread in entry.found} | history.masks
                history.give(cpus_of(change.after))
            case MemoryChange() | MetadataChange():
                pass
            case _:
                assert_never(change)
        if persist:
            self._define(history, entry)
        if not earlier_boot:
            history.inheritors |= {thread.key: thread for thread in entry.inheritors}

    def _hold(self, change: AffinityChange, history: _History, lineage: Lineage | None) -> None:
        key = change.target.key
        for cpus in tuple(history.given)[-1:]:
            self._holders[cpus][key].until = lineage
        history.give(change.after)
        holders = self._holders.setdefault(change.after, {})
        holders.setdefault(key, _Holder(history, lineage)).until = None

    def _define(self, history: _History, entry: Entry) -> None:
        definition, change = entry.definition or NO_PINS, entry.change
        history.definition = history.definition or definition
        if isinstance(change, AffinityChange) and change.target.kind in PINNED:
            written = {*history.written, *self._damaged_cpus(change.target)}
            history.definition = last_of_others(history.definition, definition, written, change.target, self._host)
            history.written.add(change.after)

    def entries(self) -> Iterator[Entry]:
        for history in self._histories.values():
            yield replace(
                history.first,
                change=self._change(history),
                state="done",
                error=history.last.error if IN_PART in history.last.error else "",
                found=tuple(history.masks.values()) if isinstance(history.first.change, StateChange) else (),
                definition=history.definition,
                memory=(),
                lineage=history.lineage,
                inheritors=tuple(history.inheritors.values()),
                former=self._former(history) if isinstance(history.first.change, (AffinityChange, StateChange)) else (),
            )

    def _former(self, history: _History) -> tuple[CpuSet, ...]:
        damaged = self._damaged_cpus(history.first.change.target)
        return tuple(dict.fromkeys((*tuple(history.given)[:-1], *damaged)))

    def _damaged_cpus(self, target: Target) -> Iterator[CpuSet]:
        return (damaged.cpus for damaged in self.damaged if damaged.owner and damaged.may_concern(target))

    def needed_runs(self, ended: Collection[str]) -> frozenset[str]:
        for _ in self.entries():  # it finds the sources, too
            pass
        due = [history for history in self._histories.values() if not history.runs <= set(ended)]
        needed = {history.first.change.target.key: history for history in due}
        while due:
            for source in due.pop().sources:
                if (key := source.first.change.target.key) not in needed:
                    needed[key] = source
                    due.append(source)
        return frozenset(run for history in needed.values() for run in history.runs)

    def _change(self, history: _History) -> Change:
        match history.first.change, history.last.change:
            case AffinityChange() as first, AffinityChange() as last:
                return replace(first, before=self._prior(history), after=last.after, target=last.target)
            case StateChange() as first, StateChange() as last:
                return replace(first, after=last.after)
            case MemoryChange() as first, MemoryChange() as last:
                return replace(first, node=last.node)
            case MetadataChange() as first, MetadataChange():
                return history.names or first
        raise TypeError(f"{history.first.change.target} has changes of two kinds")

    @staticmethod
    def _names(history: _History, change: MetadataChange, *, persist: bool, earlier_boot: bool) -> MetadataChange:
        later = metadata.as_started(change) if earlier_boot and persist else change
        if history.names is None:
            return later
        return metadata.joined(history.names, later, persist=persist, persisted=history.definition != "")

    def _prior(self, history: _History) -> tuple[ThreadMask, ...]:
        for key, (thread, sources) in history.inherited.items():
            known = _known_sources(sources, history)
            # One of them is enough after the others were deleted: the oldest one.
            history.sources += known[:1]
            masks = [prior_mask(source.first.change.target, tuple(source.masks.values())) for source in known]
            cpus = Counter(masks).most_common(1)[0][0] if masks else thread.cpus
            history.masks[key] = replace(thread, cpus=cpus)
        return tuple(history.masks.values())

    def _sources_of(self, thread: ThreadMask, history: _History, seen: Lineage | None) -> list[_History]:
        """The other targets that had the mask when the thread started; those that had got another one where no other
        had it. ``seen``: of the change that found the thread."""
        sources = list(self._earlier_holders(thread, history, seen))
        having = [source.history for source in sources if source.had_it(thread.started, seen)]
        return having or [source.history for source in sources]

    def _earlier_holders(self, thread: ThreadMask, history: _History, seen: Lineage | None) -> Iterator[_Holder]:
        target = history.first.change.target
        for holder in self._holders.get(thread.cpus, {}).values():
            source, since = holder.history, holder.since
            other = source.first.change.target
            if source is history or (other.kind == "process") != (target.kind == "process"):
                continue
            if target.kind != "process":
                if may_start_threads_of(other, target) and may_inherit_of_guest(thread.started, since, seen):
                    yield holder
            elif since is not None and thread.started >= since.since and _same_boot(source, history):
                yield holder


def _known_sources(sources: Iterable[_History], history: _History) -> list[_History]:
    known = [source for source in sources if source.masks]
    related = [source for source in known if _is_related(source, history)]
    return related or known or ([history] if history.masks else [])


def _same_boot(source: _History, history: _History) -> bool:
    mine, theirs = history.first.lineage, source.first.lineage
    return mine is not None and theirs is not None and mine.boot == theirs.boot


def _is_related(source: _History, history: _History) -> bool:
    mine, theirs = history.first.lineage, source.first.lineage
    if mine is None or theirs is None:
        return False
    return (mine.service != "" and mine.service == theirs.service) or (
        mine.layout != "" and mine.layout == theirs.layout
    )


def purge(journal: Journal, before: datetime, host: Host, name: str, boot: str = "") -> int:
    """Delete the runs that began before a moment and that no undo needs; returns their number. Runs with damaged
    records stay. ``name``: the host's. Raises StoreUnavailable."""

    def is_kept(run: str) -> bool:
        entries, damaged = journal.readable_entries(run)
        return bool(damaged) or can_be_undone(journal.run(run), entries, host, boot)

    return journal.purge(before, is_kept, lambda ended: source_runs(ended, journal.in_force(name), boot, host))


def can_be_undone(run: Run, entries: Iterable[Entry], host: Host, boot: str = "") -> bool:
    """Whether a change is in place on a live target or inheritor, or in a definition."""
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
