"""The masks from before pinner placed a guest, by the changes that were made to it.

A thread that started after a placement, such as a plugged-in vCPU, may have inherited a mask of pinner's. It has the
prior mask of its source; see pinner.apply.undo.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pinner.model.change import AffinityChange, TargetKey, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.processes.process import Lineage, may_inherit_of_guest
from pinner.model.run.journal import Entry


@dataclass(frozen=True, slots=True)
class Placed:
    """The prior mask of each thread, and the last CPUs of each target."""

    first: dict[ThreadKey, CpuSet] = field(default_factory=dict)
    last: dict[TargetKey, CpuSet] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Part:
    owner: str
    since: Lineage | None
    """The facts at the first change."""
    given: set[CpuSet] = field(default_factory=set)
    masks: dict[ThreadKey, CpuSet] = field(default_factory=dict)
    """From before pinner first touched the threads."""
    inheritors: dict[ThreadKey, tuple[CpuSet, tuple["_Part", ...]]] = field(default_factory=dict)
    """First known with pinner's mask; with the other parts that had it."""

    def resolve(self) -> None:
        """The older parts have been resolved."""
        own = self.masks.copy()
        for key, (mask, sources) in self.inheritors.items():
            known = [own] if own else [source.masks for source in sources if source.masks]
            prior = [_most_common(masks.values()) for masks in known]
            self.masks[key] = _most_common(prior) if prior else mask


def past_of(done: Iterable[Entry]) -> Placed:
    """``done``: changes of affinities, oldest first."""
    parts: dict[TargetKey, _Part] = {}
    past = Placed()
    for entry in done:
        change = entry.change
        if isinstance(change, AffinityChange):
            part = parts.setdefault(change.target.key, _Part(change.target.owner, entry.lineage))
            for mask in (*change.before, *entry.found):
                _add(mask, part, tuple(_sources(mask, part, entry.lineage, parts.values())))
            part.given.add(change.after)
            past.last[change.target.key] = change.after
    for part in parts.values():
        part.resolve()
        past.first.update(part.masks)
    return past


def _add(mask: ThreadMask, part: _Part, sources: tuple[_Part, ...]) -> None:
    if mask.key in part.masks or mask.key in part.inheritors:
        return
    if mask.cpus in part.given or sources:
        part.inheritors[mask.key] = mask.cpus, sources
    else:
        part.masks[mask.key] = mask.cpus


def _sources(mask: ThreadMask, part: _Part, seen: Lineage | None, parts: Iterable[_Part]) -> Iterator[_Part]:
    """From which a thread may have its mask; ``seen``: when the thread was found."""
    for other in parts:
        if other is part or other.owner != part.owner or mask.cpus not in other.given:
            continue
        if may_inherit_of_guest(mask.started, other.since, seen):
            yield other


def _most_common(masks: Iterable[CpuSet]) -> CpuSet:
    return Counter(masks).most_common(1)[0][0]
