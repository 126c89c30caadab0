"""An undo restores the masks of threads that inherited theirs from a process of the run."""

from collections.abc import Mapping
from dataclasses import replace

from pinner.apply.ports import Host, Journal
from pinner.apply.steps.masks import PASSES, converge, given_masks, prior_mask
from pinner.model.change import AffinityChange, Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.machine.process import Lineage
from pinner.model.run.journal import Entry


def restore_inheritors(entry: Entry, change: AffinityChange, host: Host, journal: Journal) -> list[str]:
    """Returns the problems. A thread that another program has restricted further keeps its mask. Raises
    StoreUnavailable."""
    given, prior = given_masks(entry, change, host), prior_mask(change.target, change.before)
    if change.target.kind != "process" or entry.lineage is None or prior in given:
        return []
    return _Inheritors(entry, change.target, entry.lineage, given, host, journal).restore(prior)


class _Inheritors:
    def __init__(
        self, entry: Entry, target: Target, since: Lineage, given: frozenset[CpuSet], host: Host, journal: Journal
    ) -> None:
        self._entry = entry
        self._target = target
        self._since = since
        self._given = given
        self._host = host
        self._journal = journal
        self._refused: dict[ThreadKey, str] = {}
        self._unsure: tuple[ThreadMask, ...] = ()

    def restore(self, prior: CpuSet) -> list[str]:
        # The list of the placed processes can be long, and most processes have no inheritors.
        if not self._host.has_inheritors(self._target, self._since, self._given):
            return []
        others = self._journal.placed_processes()
        others.pop(ThreadKey(int(self._target.owner), self._target.part or 0), None)
        remaining = converge(lambda: self._misplaced(others), lambda threads: self._move(threads, prior))
        problems = list(self._refused.values())[:1]
        if remaining:
            threads = ", ".join(str(thread.tid) for thread in remaining)
            problems.append(f"threads {threads}, which inherited the mask, still have it after {PASSES} passes")
        if self._unsure:
            threads = ", ".join(str(thread.tid) for thread in self._unsure)
            problems.append(
                f"threads {threads} run the program of {self._target} on CPUs {self._unsure[0].cpus} and are left "
                "there: nobody knows whether they inherited these CPUs from it or from their present parent; if from "
                f"it, move them with: taskset -cp {prior} TID"
            )
        return problems

    def _misplaced(self, others: Mapping[ThreadKey, int]) -> list[ThreadMask]:
        inheritors = self._host.inheritors(self._target, self._since, self._given, others)
        self._unsure = inheritors.unsure
        return [thread for thread in inheritors.sure if thread.key not in self._refused]

    def _move(self, threads: list[ThreadMask], prior: CpuSet) -> None:
        known = {thread.key for thread in self._entry.inheritors}
        if new := tuple(thread for thread in threads if thread.key not in known):
            self._entry = replace(self._entry, inheritors=(*self._entry.inheritors, *new))
            self._journal.intend(self._entry)
        for thread in threads:
            try:
                self._host.set_mask(replace(thread, cpus=prior))
            except Gone:
                continue
            except ApplyFailed as error:
                self._refused[thread.key] = str(error)
