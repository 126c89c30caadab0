"""The masks of a run that later runs found as the prior masks of other targets.

A process that inherited a mask of the run may have been placed by a later run. The undo of that later run restores the
inherited mask. So a rollback of the first run alone first corrects what the journal has of the later ones: nothing of
the first run comes back after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pinner.apply.ports import Host, Journal
from pinner.apply.steps.heirs import given_masks, usual
from pinner.model.change import AffinityChange, Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.journal import Damaged, Entry, InForce, Run
from pinner.model.lineage import Lineage, may_inherit_of_guest


def correct_later_runs(undone: Run, entries: Sequence[Entry], host: Host, journal: Journal) -> None:
    """Correct the journal before these entries of the run ``undone`` are undone. A repetition changes nothing. Raises
    StoreUnavailable."""
    journal.correct(_corrected(entries, journal.in_force(undone.host, after=undone.id), host))


def _corrected(undone: Sequence[Entry], later: Iterable[InForce | Damaged], host: Host) -> Iterator[Entry]:
    """The entries of ``later`` runs (oldest first) that found masks which ``undone`` changes had handed down; with the
    masks that their threads would have had without these changes."""
    givers = [
        _Giver(entry.change.target, entry.lineage, given_masks(entry, entry.change, host), prior)
        for entry in undone
        if isinstance(entry.change, AffinityChange)
        and entry.change.before
        and (prior := usual(entry.change.target, entry.change.before)) != entry.change.after
    ]
    seen: set[ThreadKey] = set()
    for each in later if givers else ():
        if isinstance(each, InForce) and isinstance(change := each.entry.change, AffinityChange):
            finder = _Finder(change.target, each.entry.lineage, givers, seen)
            before, found = finder.corrected(change.before), finder.corrected(each.entry.found)
            seen |= {thread.key for thread in (*before, *found)}
            if (before, found) != (change.before, each.entry.found):
                yield replace(each.entry, change=replace(change, before=before), found=found)


@dataclass(frozen=True, slots=True)
class _Giver:
    """A target that handed its mask down to threads which started after ``since``."""

    target: Target
    since: Lineage | None
    masks: frozenset[CpuSet]
    prior: CpuSet


@dataclass(frozen=True, slots=True)
class _Finder:
    """A change that found threads with their prior masks; ``seen`` are the threads that older changes found."""

    target: Target
    since: Lineage | None
    givers: Sequence[_Giver]
    seen: set[ThreadKey]

    def corrected(self, threads: tuple[ThreadMask, ...]) -> tuple[ThreadMask, ...]:
        """The threads; each one that may have inherited a mask has the one from before it."""
        return tuple(replace(each, cpus=self._prior(each)) for each in threads)

    def _prior(self, thread: ThreadMask) -> CpuSet:
        if thread.key not in self.seen:
            for giver in self.givers:
                if thread.cpus in giver.masks and self._may_inherit(thread, giver):
                    return giver.prior
        return thread.cpus

    def _may_inherit(self, thread: ThreadMask, giver: _Giver) -> bool:
        if giver.target.kind != "process" or self.target.kind != "process":
            same = giver.target.owner == self.target.owner and giver.target.kind != self.target.kind
            return same and may_inherit_of_guest(thread.started, giver.since, self.since)
        mine, theirs = self.since, giver.since
        if mine is None or theirs is None or mine.boot != theirs.boot or thread.started < theirs.since:
            return False
        return "" in (mine.service, theirs.service) or mine.service == theirs.service
