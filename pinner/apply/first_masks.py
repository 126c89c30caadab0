"""The changes of all runs of a host as one change for each target: from what it had before pinner first touched it.

A thread that started after pinner had placed its target, its guest or the process that it descends from may have
inherited a mask of pinner's. Such a mask is no prior mask: the thread gets the mask that it would have inherited.

Of the changes of an earlier boot of the host, only the pins in definitions are left. The ids and start times of their
threads belong to other threads now.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import assert_never

from pinner.apply.steps.affinity import of_no_thread
from pinner.apply.steps.heirs import usual
from pinner.model.change import (
    PINNED,
    AffinityChange,
    Change,
    MemoryChange,
    StateChange,
    TargetKey,
    ThreadKey,
    ThreadMask,
    cpus_of,
)
from pinner.model.cpuset import CpuSet
from pinner.model.journal import Entry, InForce, Run
from pinner.model.lineage import Lineage

NO_PINS = "<cputune/>"
"""The pins of a definition that had none."""


def whole_undo(run: Run, made: Iterable[InForce], at: datetime) -> tuple[Entry, ...]:
    """The entries of a rollback of all runs in the boot ``run.boot``. ``made`` are the changes in force, oldest first.

    Threads come first, then states, then memory: the entries are undone in reverse order.
    """
    history = _History()
    for each in made:
        earlier = "" not in (each.boot, run.boot) and each.boot != run.boot
        if not earlier or (each.persist and each.entry.change.target.kind in PINNED):
            history.add(each.entry, persist=each.persist, earlier_boot=earlier)
    changes = sorted(history.entries(), key=lambda entry: _ORDER[entry.change.kind])
    return tuple(replace(entry, run=run.id, seq=seq, at=at) for seq, entry in enumerate(changes, start=1))


_ORDER = {"affinity": 0, "state": 1, "memory": 2}


@dataclass(slots=True, eq=False)
class _Past:
    """All changes of one target."""

    first: Entry
    last: Entry
    definition: str = ""
    masks: dict[ThreadKey, ThreadMask] = field(default_factory=dict)
    """The mask of each thread before pinner first touched it."""
    inherited: dict[ThreadKey, tuple[ThreadMask, tuple["_Past", ...]]] = field(default_factory=dict)
    """The threads whose first known mask is pinner's, each with the other targets from which it may have the mask."""
    heirs: dict[ThreadKey, ThreadMask] = field(default_factory=dict)
    given: dict[CpuSet, None] = field(default_factory=dict)
    """The CPUs that runs gave to the target, oldest first."""


class _History:
    def __init__(self) -> None:
        self._pasts: dict[TargetKey, _Past] = {}
        self._givers: dict[CpuSet, dict[TargetKey, _Past]] = {}
        """The changes that gave a mask to threads."""

    def add(self, entry: Entry, *, persist: bool, earlier_boot: bool) -> None:
        """Add a change that is newer than all before."""
        change = entry.change
        past = self._pasts.setdefault(change.target.key, _Past(entry, entry))
        past.last = entry
        if persist and not past.definition:
            past.definition = entry.definition or NO_PINS
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
                past.given[change.after] = None
                self._givers.setdefault(change.after, {})[change.target.key] = past
            case StateChange():
                past.masks = {thread.key: thread for thread in entry.found} | past.masks
                past.given[cpus_of(change.after)] = None
            case MemoryChange():
                pass
            case _:
                assert_never(change)
        if not earlier_boot:
            past.heirs |= {thread.key: thread for thread in entry.heirs}

    def entries(self) -> Iterator[Entry]:
        """One entry for each target."""
        for past in self._pasts.values():
            yield replace(
                past.first,
                change=self._change(past),
                state="done",
                error="",
                found=tuple(past.masks.values()) if isinstance(past.first.change, StateChange) else (),
                definition=past.definition,
                memory=(),
                heirs=tuple(past.heirs.values()),
                former=tuple(past.given)[:-1] if isinstance(past.first.change, (AffinityChange, StateChange)) else (),
            )

    def _change(self, past: _Past) -> Change:
        match past.first.change, past.last.change:
            case AffinityChange() as first, AffinityChange() as last:
                return replace(first, before=self._prior(past), after=last.after, target=last.target)
            case StateChange() as first, StateChange() as last:
                return replace(first, after=last.after)
            case MemoryChange() as first, MemoryChange() as last:
                return replace(first, node=last.node)
        raise TypeError(f"{past.first.change.target} has changes of two kinds")

    def _prior(self, past: _Past) -> tuple[ThreadMask, ...]:
        """The prior mask of each thread. Older targets come first, so their prior masks are known by now."""
        found = {}
        for key, (thread, givers) in past.inherited.items():
            usuals = [_usual(each) for each in _sources(givers, past)]
            cpus = Counter(usuals).most_common(1)[0][0] if usuals else thread.cpus
            found[key] = replace(thread, cpus=cpus)
        past.masks |= found
        return tuple(past.masks.values())

    def _givers_of(self, thread: ThreadMask, past: _Past, seen: Lineage | None) -> Iterator[_Past]:
        """The other targets that had the thread's mask when the thread started: of the same guest, or processes.
        ``seen`` is the lineage of the change that found the thread."""
        target = past.first.change.target
        for giver in self._givers.get(thread.cpus, {}).values():
            other, since = giver.first.change.target, giver.first.lineage
            if giver is past or (other.kind == "process") != (target.kind == "process"):
                continue
            if target.kind != "process":
                later = since is None or (seen is not None and seen.boot != since.boot) or thread.started >= since.since
                if other.owner == target.owner and later:
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
