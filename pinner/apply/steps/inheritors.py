"""The masks of a target before a run and those that runs gave to it; and the threads of other targets that inherited
one: of processes that descend from the target, or of its guest."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from pinner.apply.ports import Host, Journal
from pinner.model.change import AffinityChange, Target, TargetKey, ThreadKey, ThreadMask, masks_of
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, PinnerError
from pinner.model.kinds import PINNED
from pinner.model.machine.process import Lineage, main_thread, may_inherit_of_guest
from pinner.model.run.journal import Entry

PASSES = 10


def prior_mask(target: Target, before: Sequence[ThreadMask]) -> CpuSet:
    """That of the first thread of a process or an emulator, which starts most others; else the most common one."""
    if main := main_thread(target, before):
        return masks_of(before)[main]
    masks = {thread.tid: thread.cpus for thread in before}
    most = Counter(masks.values()).most_common(1)[0][0]
    return masks.get(int(target.owner), most) if target.kind == "process" else most


def given_masks(entry: Entry, change: AffinityChange, host: Host) -> frozenset[CpuSet]:
    """The masks that runs gave to the target, also without offline CPUs, as the kernel then shows them."""
    online = host.online()
    given = (change.after, *entry.former)
    return frozenset((*given, *(cpus & online for cpus in given)))


def converge(
    misplaced: Callable[[], list[ThreadMask]], move: Callable[[list[ThreadMask]], None]
) -> tuple[ThreadMask, ...]:
    """Returns those misplaced after the last pass. After a pass with some, two readings in a row must find none: a
    misplaced thread can create another one."""
    needed = 1
    remaining: list[ThreadMask] = []
    for _ in range(PASSES):
        remaining = misplaced()
        if remaining:
            move(remaining)
            needed = 2
        else:
            needed -= 1
        if not needed:
            break
    return tuple(remaining)


def restore_inheritors(
    entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool
) -> list[str]:
    """Returns problems. A thread that another program restricted further keeps its mask. Raises StoreUnavailable."""
    given, prior = given_masks(entry, change, host), prior_mask(change.target, change.before)
    if change.target.kind not in ("process", *PINNED) or entry.lineage is None or prior in given:
        return []
    return _Inheritors(entry, change.target, entry.lineage, given, host, journal, persist=persist).restore(prior)


class _Inheritors:
    def __init__(
        self,
        entry: Entry,
        target: Target,
        since: Lineage,
        given: frozenset[CpuSet],
        host: Host,
        journal: Journal,
        *,
        persist: bool,
    ) -> None:
        self._entry = entry
        self._target = target
        self._since = since
        self._given = given
        self._host = host
        self._journal = journal
        self._persist = persist
        self._refused: dict[ThreadKey, str] = {}
        self._unsure: tuple[ThreadMask, ...] = ()
        self._parts: dict[ThreadKey, Target] = {}
        """The vCPUs and iothreads, which libvirt can pin."""

    def restore(self, prior: CpuSet) -> list[str]:
        find: Callable[[], Iterable[ThreadMask]] = self._of_guest
        if self._target.kind == "process":
            # The list of the placed processes can be long, and most processes have no inheritors.
            if not self._host.has_inheritors(self._target, self._since, self._given):
                return []
            others = self._journal.placed_processes()
            others.pop(ThreadKey(int(self._target.owner), self._target.part or 0), None)
            find = partial(self._of_process, others)
        remaining = converge(
            lambda: [thread for thread in find() if thread.key not in self._refused],
            lambda threads: self._move(threads, prior),
        )
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

    def _of_process(self, others: Mapping[ThreadKey, int]) -> tuple[ThreadMask, ...]:
        inheritors = self._host.inheritors(self._target, self._since, self._given, others)
        self._unsure = inheritors.unsure
        return inheritors.sure

    def _of_guest(self) -> list[ThreadMask]:
        """Without those that the undo of their own part restores. A guest that has restarted since has the mask only
        from its definition."""
        emulator = replace(self._target, kind="emulator", part=None)
        try:
            workers = self._host.masks(emulator)
            main = min(workers, key=lambda thread: thread.started)
            is_same = self._host.lineage(emulator).boot == self._since.boot and main.started < self._since.since
            if not (is_same or self._persist):
                return []
            if self._target == emulator:
                return list(self._of_parts())
        except Gone:
            return []
        # A worker may have the main thread's own mask.
        return [thread for thread in workers if thread.cpus != main.cpus and self._is_inheritor(thread, emulator)]

    def _of_parts(self) -> Iterator[ThreadMask]:
        definition = self._host.guests.definition(self._target.owner) if self._persist else ""
        for kind, number in sorted(self._host.parts(self._target.owner)):
            part = replace(self._target, kind=kind, part=number)
            if self._persist and self._host.defined_pin(part, definition):
                continue
            for thread in self._threads(part):
                if self._is_inheritor(thread, part):
                    self._parts[thread.key] = part
                    yield thread

    def _threads(self, part: Target) -> tuple[ThreadMask, ...]:
        try:
            return self._host.masks(part)
        except Gone:
            return ()
        except Exception:
            if part.key in self._own_undo:
                return ()  # it names the failure
            raise

    @cached_property
    def _own_undo(self) -> Mapping[TargetKey, tuple[set[ThreadKey], set[CpuSet]]]:
        """By part that a run placed: the threads, and the masks of others, that the part's own undo restores. An entry
        that is stuck has restored the threads that it knows already, where it could."""
        restores: dict[TargetKey, tuple[set[ThreadKey], set[CpuSet]]] = {}
        for entry in self._journal.changes_of(self._target.owner):
            if isinstance(change := entry.change, AffinityChange):
                threads, masks = restores.setdefault(change.target.key, (set(), set()))
                threads.update(masks_of((*change.before, *entry.found)) if entry.state == "done" else ())
                masks |= given_masks(entry, change, self._host)
        return restores

    def _is_inheritor(self, thread: ThreadMask, part: Target) -> bool:
        if thread.cpus not in self._given:
            return False
        if not may_inherit_of_guest(thread.started, self._since, self._host.lineage(self._target)):
            return False
        threads, masks = self._own_undo.get(part.key, ((), ()))
        return thread.key not in threads and thread.cpus not in masks

    def _move(self, threads: list[ThreadMask], prior: CpuSet) -> None:
        known = {thread.key for thread in self._entry.inheritors}
        if new := tuple(thread for thread in threads if thread.key not in known):
            self._entry = replace(self._entry, inheritors=(*self._entry.inheritors, *new))
            self._journal.intend(self._entry)
        for thread in threads:
            try:
                self._set_mask(thread, prior)
            except Gone:
                continue
            except PinnerError as error:
                self._refused[thread.key] = str(error)

    def _set_mask(self, thread: ThreadMask, prior: CpuSet) -> None:
        try:
            self._host.set_mask(replace(thread, cpus=prior), thread.cpus)
        except ApplyFailed:
            part = self._parts.get(thread.key)
            if part is None:
                raise
            # An undo may have left a pin, and so a cpuset, that allows fewer CPUs.
            self._host.pin(part, prior, persist=False)
