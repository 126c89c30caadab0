"""The changes of all runs of a host as one change for each target: from what it had before pinner first touched it.

A thread that started after pinner had placed its target, its guest or the process that it descends from may have
inherited a mask of pinner's. Such a mask is no prior mask: the thread gets the mask that it would have inherited.

Of the changes of an earlier boot of the host, only pins in definitions and saved images are left. The ids and start
times of their threads belong to other threads now.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from pinner.apply.ports import Host
from pinner.apply.steps import metadata
from pinner.apply.steps.affinity import of_no_thread
from pinner.apply.steps.heirs import usual
from pinner.apply.undo.definitions import last_of_others
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
)
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import DEFINED, PINNED, cpus_of
from pinner.model.processes.lineage import Lineage, may_inherit_of_guest
from pinner.model.run import boots
from pinner.model.run.journal import IN_PART, Damaged, Entry, InForce, Run

NO_PINS = "<cputune/>"
"""The pins of a definition that had none."""


@dataclass(frozen=True, slots=True)
class WholeUndo:
    """The changes that a rollback of all runs undoes."""

    entries: tuple[Entry, ...]
    """The changes as entries of the rollback."""
    damaged: tuple[Damaged, ...] = ()
    """The changes that it cannot undo, because their records are damaged."""


def whole_undo(run: Run, made: Iterable[InForce | Damaged], at: datetime, host: Host) -> WholeUndo:
    """The entries of a rollback of all runs of ``host`` in the boot ``run.boot``. ``made`` are the changes in force,
    oldest first.

    Metadata comes first, then threads, then states, then memory: the entries are undone in reverse order.
    """
    history = _History(made, run.boot, host)
    changes = sorted(history.entries(), key=lambda entry: _ORDER[entry.change.kind])
    entries = tuple(replace(entry, run=run.id, seq=seq, at=at) for seq, entry in enumerate(changes, start=1))
    return WholeUndo(entries, tuple(history.damaged))


def damaged_in_force(made: Iterable[InForce | Damaged], boot: str) -> tuple[Damaged, ...]:
    """The damaged ones among the changes in force that a rollback of all runs in this boot cannot undo."""
    found = (each for each in made if isinstance(each, Damaged))
    return tuple(each for each in found if not each.has_ended(boot))


def sources(ended: Collection[str], made: Iterable[InForce | Damaged], boot: str, host: Host) -> frozenset[str]:
    """The runs among ``ended`` from which a rollback of all other runs takes prior masks.

    ``ended`` are ids of runs whose own targets have ended. Of them, the undo still needs every run that changed a
    target of another run, and the runs of the target from which a thread may have inherited its first known mask.
    ``made``, ``boot`` and ``host`` as for ``whole_undo``.
    """
    return _History(made, boot, host).needed_runs(ended) & frozenset(ended)


_ORDER = {"metadata": 0, "affinity": 1, "state": 2, "memory": 3}


@dataclass(slots=True, eq=False)
class _Past:
    """All changes of one target."""

    first: Entry
    last: Entry
    definition: str = ""
    """The one to restore: an operator may have changed the target's pin in it since the first run."""
    written: set[CpuSet] = field(default_factory=set)
    """The CPUs that runs wrote to the definition."""
    masks: dict[ThreadKey, ThreadMask] = field(default_factory=dict)
    """The mask of each thread before pinner first touched it."""
    inherited: dict[ThreadKey, tuple[ThreadMask, tuple["_Past", ...]]] = field(default_factory=dict)
    """The threads whose first known mask is pinner's, each with the other targets from which it may have the mask."""
    heirs: dict[ThreadKey, ThreadMask] = field(default_factory=dict)
    names: MetadataChange | None = None
    """Of a guest's metadata: all its changes as one."""
    given: dict[CpuSet, None] = field(default_factory=dict)
    """The CPUs that runs gave to the target; those of the last run are the last ones."""
    runs: set[str] = field(default_factory=set)
    """The runs that changed the target."""
    sources: list["_Past"] = field(default_factory=list)
    """The oldest target from which each such thread may have its mask, once the prior masks are known."""

    def give(self, cpus: CpuSet) -> None:
        """Note what the last run gave, also where an earlier one had given the same."""
        self.given.pop(cpus, None)
        self.given[cpus] = None


class _History:
    def __init__(self, made: Iterable[InForce | Damaged], boot: str, host: Host) -> None:
        """``made`` are the changes in force, oldest first; ``boot`` is the host's present boot."""
        self.damaged: list[Damaged] = []
        """The changes whose records are damaged, without those that have ended with their threads."""
        self._host = host
        self._pasts: dict[TargetKey, _Past] = {}
        self._givers: dict[CpuSet, dict[TargetKey, tuple[_Past, Lineage | None]]] = {}
        """The targets that got a mask, each with the lineage of the first change that gave them this mask."""
        for each in made:
            if isinstance(each, Damaged):
                self.damaged += [] if each.has_ended(boot) else [each]
                continue
            earlier = boots.differ(each.boot, boot)
            if not earlier or each.entry.change.target.kind in DEFINED:
                self._add(each.entry, persist=each.persist, earlier_boot=earlier)

    def _add(self, entry: Entry, *, persist: bool, earlier_boot: bool) -> None:
        """Add a change that is newer than all before."""
        change = entry.change
        past = self._pasts.setdefault(change.target.key, _Past(entry, entry))
        past.last = entry
        past.runs.add(entry.run)
        if isinstance(change, MetadataChange):
            past.names = self._names(past, change, persist=persist, earlier_boot=earlier_boot)
        if persist:
            self._define(past, entry)
        match change:
            case AffinityChange():
                for thread in (*change.before, *entry.found):
                    noted = of_no_thread(thread) if earlier_boot else thread
                    if noted.key in past.masks or noted.key in past.inherited:
                        continue
                    givers = tuple(self._givers_of(thread, past, entry.lineage))
                    if thread.cpus in past.given or givers:
                        past.inherited[noted.key] = noted, givers
                    else:
                        past.masks[noted.key] = noted
                past.give(change.after)
                self._givers.setdefault(change.after, {}).setdefault(change.target.key, (past, entry.lineage))
            case StateChange():
                past.masks = {thread.key: thread for thread in entry.found} | past.masks
                past.give(cpus_of(change.after))
            case MemoryChange() | MetadataChange():
                pass
            case _:
                assert_never(change)
        if not earlier_boot:
            past.heirs |= {thread.key: thread for thread in entry.heirs}

    def _define(self, past: _Past, entry: Entry) -> None:
        found, change = entry.definition or NO_PINS, entry.change
        past.definition = past.definition or found
        if isinstance(change, AffinityChange) and change.target.kind in PINNED:
            written = {*past.written, *self._damaged_cpus(change.target)}
            past.definition = last_of_others(past.definition, found, written, change.target, self._host)
            past.written.add(change.after)

    def entries(self) -> Iterator[Entry]:
        """One entry for each target."""
        for past in self._pasts.values():
            yield replace(
                past.first,
                change=self._change(past),
                state="done",
                error=past.last.error if IN_PART in past.last.error else "",
                found=tuple(past.masks.values()) if isinstance(past.first.change, StateChange) else (),
                definition=past.definition,
                memory=(),
                heirs=tuple(past.heirs.values()),
                former=self._former(past) if isinstance(past.first.change, (AffinityChange, StateChange)) else (),
            )

    def _former(self, past: _Past) -> tuple[CpuSet, ...]:
        """The CPUs that runs gave to a target before the last run, and those of its damaged records."""
        damaged = self._damaged_cpus(past.first.change.target)
        return tuple(dict.fromkeys((*tuple(past.given)[:-1], *damaged)))

    def _damaged_cpus(self, target: Target) -> Iterator[CpuSet]:
        return (each.cpus for each in self.damaged if each.owner and each.may_concern(target))

    def needed_runs(self, ended: Collection[str]) -> frozenset[str]:
        """The runs that changed a target of a run that has not ``ended``, or a target from which such a target may
        have inherited its mask."""
        for _ in self.entries():  # it finds the sources, too
            pass
        due = [past for past in self._pasts.values() if not past.runs <= set(ended)]
        needed = {past.first.change.target.key: past for past in due}
        while due:
            for source in due.pop().sources:
                if (key := source.first.change.target.key) not in needed:
                    needed[key] = source
                    due.append(source)
        return frozenset(run for past in needed.values() for run in past.runs)

    def _change(self, past: _Past) -> Change:
        match past.first.change, past.last.change:
            case AffinityChange() as first, AffinityChange() as last:
                return replace(first, before=self._prior(past), after=last.after, target=last.target)
            case StateChange() as first, StateChange() as last:
                return replace(first, after=last.after)
            case MemoryChange() as first, MemoryChange() as last:
                return replace(first, node=last.node)
            case MetadataChange() as first, MetadataChange():
                return past.names or first
        raise TypeError(f"{past.first.change.target} has changes of two kinds")

    @staticmethod
    def _names(past: _Past, change: MetadataChange, *, persist: bool, earlier_boot: bool) -> MetadataChange:
        later = metadata.as_started(change) if earlier_boot and persist else change
        if past.names is None:
            return later
        return metadata.joined(past.names, later, persist=persist, persisted=past.definition != "")

    def _prior(self, past: _Past) -> tuple[ThreadMask, ...]:
        """The prior mask of each thread. Older targets come first, so their prior masks are known by now."""
        found = {}
        for key, (thread, givers) in past.inherited.items():
            found_sources = _sources(givers, past)
            # One of them is enough after the others were deleted: the oldest one.
            past.sources += found_sources[:1]
            usuals = [_usual(each) for each in found_sources]
            cpus = Counter(usuals).most_common(1)[0][0] if usuals else thread.cpus
            found[key] = replace(thread, cpus=cpus)
        past.masks |= found
        return tuple(past.masks.values())

    def _givers_of(self, thread: ThreadMask, past: _Past, seen: Lineage | None) -> Iterator[_Past]:
        """The other targets that had the thread's mask when the thread started: of the same guest, or processes.
        ``seen`` is the lineage of the change that found the thread."""
        target = past.first.change.target
        for giver, since in self._givers.get(thread.cpus, {}).values():
            other = giver.first.change.target
            if giver is past or (other.kind == "process") != (target.kind == "process"):
                continue
            if target.kind != "process":
                if other.owner == target.owner and may_inherit_of_guest(thread.started, since, seen):
                    yield giver
            elif since is not None and thread.started >= since.since and _same_boot(giver, past):
                yield giver


def _sources(givers: Iterable[_Past], past: _Past) -> list[_Past]:
    """The targets from which a thread may have its mask, as far as their prior masks are known."""
    if past.masks:
        return [past]
    found = [each for each in givers if each.masks]
    near = [each for each in found if _is_near(each, past)]
    return near or found


def _usual(past: _Past) -> CpuSet:
    return usual(past.first.change.target, tuple(past.masks.values()))


def _same_boot(giver: _Past, past: _Past) -> bool:
    mine, theirs = past.first.lineage, giver.first.lineage
    return mine is not None and theirs is not None and mine.boot == theirs.boot


def _is_near(giver: _Past, past: _Past) -> bool:
    """Whether a process belongs to the service of the other one, or is a fork of it."""
    mine, theirs = past.first.lineage, giver.first.lineage
    if mine is None or theirs is None:
        return False
    return (mine.service != "" and mine.service == theirs.service) or (
        mine.layout != "" and mine.layout == theirs.layout
    )
