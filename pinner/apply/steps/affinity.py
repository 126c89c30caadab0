"""A change of affinity: all threads of a target get one mask. An undo restores the prior mask of each thread, and of
those that inherited theirs from it. libvirt cannot restore "not pinned": a live pin that covers the former masks
stays."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from pinner.apply.ports import Host, Journal
from pinner.apply.steps.inheritors import PASSES, converge, given_masks, prior_mask, restore_inheritors
from pinner.apply.steps.metadata import is_named, is_saved
from pinner.model.change import AffinityChange, ThreadKey, ThreadMask, masks_of
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import ApplyFailed, Busy, Gone, PinnerError
from pinner.model.kinds import KINDS, PINNED
from pinner.model.run.journal import EARLIER_BOOT, IN_PART, Entry, EntryState
from pinner.model.text import listed

_NEVER = -1


def is_made(change: AffinityChange, threads: Sequence[ThreadMask]) -> bool:
    return all(thread.cpus == change.after for thread in threads)


def is_begun(change: AffinityChange, threads: Sequence[ThreadMask]) -> bool:
    before = masks_of(change.before)
    return any(thread.cpus == change.after != before.get(thread.key, change.after) for thread in threads)


def is_stale(change: AffinityChange, threads: Sequence[ThreadMask]) -> tuple[str, ...]:
    """Threads that ended, or that threads of the target created, are expected."""
    if threads and tuple(threads) == change.before:  # most targets: fast
        return ()
    return tuple(_differences(change, threads))


def _differences(change: AffinityChange, threads: Sequence[ThreadMask]) -> Iterator[str]:
    before = masks_of(change.before)
    familiar = {*before.values(), change.after}
    if change.target.kind != "process" and not any(thread.key in before for thread in threads):
        yield f"{change.target} has other threads: it was restarted"
        return
    for thread in threads:
        known = before.get(thread.key)
        if known is not None and thread.cpus != known:
            yield f"{change.target} thread {thread.tid} may run on {thread.cpus}, no longer on {known}"
        if known is None and change.target.kind != "process" and thread.cpus not in familiar:
            yield f"{change.target} has a new thread {thread.tid} on {thread.cpus}"


class AffinityStep:
    def __init__(
        self, entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool, resumed: bool
    ) -> None:
        self.entry = entry
        self.touched = False
        self._resumed = resumed
        self._change = change
        self._host = host
        self._journal = journal
        self._persist = persist
        known = (*change.before, *entry.found)
        self._known = {thread.key for thread in known}
        self._inherited = {thread.cpus for thread in known}
        self._moves: Counter[ThreadKey] = Counter()

    def make(self) -> None:
        target, after = self._change.target, self._change.after
        threads = self._host.masks(target)
        if moved := is_stale(self._change, self._as_begun(threads)):
            raise ApplyFailed(str(target), f"{KINDS[target.kind].movers} moved it just now: {'; '.join(moved)}")
        self._record_born(threads)
        self.touched = True
        if target.kind in PINNED:
            self._host.pin(target, after, persist=self._persist)
        # Without a cpuset controller, libvirt pins only the main thread of an emulator; and a busy process creates
        # threads all the time.
        misplaced = converge(lambda: list(filter(self._is_misplaced, self._host.masks(target))), self._move)
        if reset := [thread for thread in misplaced if self._moves[thread.key] > 1]:
            where = f"thread {reset[0].tid} is on {reset[0].cpus} again each time that pinner moves it to {after}"
            raise ApplyFailed(str(target), f"{where}: {KINDS[target.kind].movers} sets its affinity")
        if misplaced:
            raise ApplyFailed(str(target), f"{len(misplaced)} threads still are not on {after} after {PASSES} passes")

    def _as_begun(self, threads: tuple[ThreadMask, ...]) -> tuple[ThreadMask, ...]:
        """With the masks from before the interruption, except those that another program set."""
        if not self._resumed:
            return threads
        before = masks_of(self._change.before)
        are_moved = (thread.cpus == self._change.after for thread in threads)
        return tuple(
            replace(thread, cpus=before.get(thread.key, thread.cpus)) if done else thread
            for thread, done in zip(threads, are_moved, strict=True)
        )

    def _move(self, misplaced: list[ThreadMask]) -> None:
        self._record_born(misplaced)
        for thread in misplaced:
            with suppress(Gone):
                self._host.set_mask(replace(thread, cpus=self._change.after))
                self._moves[thread.key] += 1

    def _is_misplaced(self, thread: ThreadMask) -> bool:
        """A process's new thread whose mask is not inherited has it from another program."""
        if thread.cpus == self._change.after:
            return False
        if self._change.target.kind != "process":
            return True
        return thread.key in self._known or thread.cpus in self._inherited

    def _record_born(self, threads: Iterable[ThreadMask]) -> None:
        """Must be called before these threads are moved."""
        born = tuple(thread for thread in threads if self._is_misplaced(thread) and thread.key not in self._known)
        if born:
            self._known.update(thread.key for thread in born)
            self.entry = replace(self.entry, found=(*self.entry.found, *born))
            self._journal.intend(self.entry)


def undo(
    entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool, force: bool, repin: bool
) -> tuple[EntryState, str]:
    """``force``: a mask that no run gave counts as the change's result. ``force`` or ``repin``: the guest is pinned
    again even if all masks are right: a failed pin may have changed its cpuset, and a dead process's may still come."""
    problems: list[str] = []
    gone = ""
    try:
        problems += PriorMasks(entry, change, host, force=force, repin=repin).restore()
    except Gone as error:
        gone = str(error)
    except PinnerError as error:
        problems.append(str(error))
    try:
        problems += restore_inheritors(entry, change, host, journal, persist=persist)
    except PinnerError as error:  # also a journal that cannot be written: the other changes are still undone
        problems.append(str(error))
    if persist and change.target.kind in PINNED:
        try:
            host.guests.restore_definition(change.target, entry.definition, (change.after, *entry.former))
        except Gone as error:
            gone = str(error)
        except PinnerError as error:
            problems.append(f"the persistent definition: {error}")
    if problems:
        return "stuck", "; ".join(problems)
    if gone and change.target.kind in PINNED and is_saved(change.target.owner, host):
        gone = ""
    return ("gone", gone) if gone else ("undone", "")


def undo_earlier_boot(
    entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool
) -> tuple[EntryState, str]:
    """Only a definition or a saved image can still have the change, and a guest started from one, in new threads."""
    if change.target.kind not in PINNED:
        return "gone", EARLIER_BOOT
    if not persist and not is_named(change, host):
        return ("undone", "") if is_saved(change.target.owner, host) else ("gone", EARLIER_BOOT)
    change = replace(change, before=tuple(map(of_no_thread, change.before)))
    entry = replace(entry, found=(), inheritors=())
    state, why = undo(entry, change, host, journal, persist=persist, force=False, repin=False)
    return (state, EARLIER_BOOT if state == "gone" and not persist else why)


def of_no_thread(mask: ThreadMask) -> ThreadMask:
    """A mask of an earlier boot, of no present thread."""
    return replace(mask, started=_NEVER)


LOG = logging.getLogger(__name__)


class PriorMasks:
    def __init__(self, entry: Entry, change: AffinityChange, host: Host, *, force: bool, repin: bool) -> None:
        self._target = change.target
        self._given = given_masks(entry, change, host)
        self._was_in_part = IN_PART in entry.error
        self._host = host
        self._force = force
        self._repin = repin or force
        self._before = masks_of((*change.before, *entry.found))
        self._prior_of_new = prior_mask(change.target, change.before)
        self._judged: dict[ThreadKey, tuple[CpuSet, CpuSet]] = {}
        """Of each thread its mask when it was judged, and the one to restore."""
        self._ours = False
        """Whether the change pinned one of the threads, or a thread inherited its mask."""
        self._is_pinned = False
        self._pin_cpus = CpuSet()
        """Those that libvirt was asked for."""
        self._problems: list[str] = []
        self._moved: dict[ThreadKey, str] = {}
        self._refused: dict[ThreadKey, str] = {}

    def restore(self) -> list[str]:
        """Returns the problems. Raises like Host, and Gone if all threads are new and none has the change's mask."""
        if self._repin:
            try:
                self._pin()
            except Busy as error:
                # Even if the masks are right now, the overdue call may still change them.
                self._problems.append(str(error))
            except PinnerError as error:
                LOG.info("masks are restored without libvirt: %s", error)
        misplaced = converge(self._misplaced, self._move)
        if misplaced:
            self._problems.append(
                f"threads {', '.join(str(thread.tid) for thread in misplaced)} do not stay on their prior mask"
            )
        if self._refused:
            self._problems.append(listed(list(self._refused.values()), 1, "; "))
        if not self._ours:
            raise Gone(f"{self._target} of that run (it was restarted since)")
        return [*self._moved.values(), *self._problems]

    def _misplaced(self) -> list[ThreadMask]:
        threads = (thread for thread in self._host.masks(self._target) if thread.key not in self._refused)
        return [thread for thread in threads if self._prior(thread) != thread.cpus]

    def _move(self, misplaced: list[ThreadMask]) -> None:
        if self._target.kind in PINNED and not self._is_pinned:
            self._pin()
            return
        for thread in misplaced:
            prior = self._prior(thread)
            try:
                self._host.set_mask(replace(thread, cpus=prior), thread.cpus)
            except Gone:
                continue
            except ApplyFailed as error:
                self._refused[thread.key] = self._restore_in_part(thread, prior) or str(error)

    def _restore_in_part(self, thread: ThreadMask, prior: CpuSet) -> str:
        """Returns which CPUs are offline; empty where the kernel refuses the mask for another reason."""
        offline = prior - self._host.online()
        if not offline or offline == prior:
            return ""
        with suppress(Gone):
            try:
                self._host.set_mask(replace(thread, cpus=prior - offline))
            except ApplyFailed:
                return ""
        return f"thread {thread.tid} had CPUs {prior}: CPUs {offline} {IN_PART}"

    def _pin(self) -> None:
        """To all online CPUs that any thread needs, so that the cpuset allows each mask."""
        if self._target.kind in PINNED:
            cpus = union(self._prior(thread) for thread in self._host.masks(self._target))
            self._pin_cpus = (cpus & self._host.online()) or cpus
            self._host.pin(self._target, self._pin_cpus, persist=False)
            self._is_pinned = True

    def _prior(self, thread: ThreadMask) -> CpuSet:
        """Chosen at the first look at the thread: later its mask may come from ``_pin``. Any other one is of another
        program."""
        judged = self._judged.get(thread.key)
        if judged is None or thread.cpus not in (*judged, self._pin_cpus, judged[0] & self._pin_cpus):
            judged = thread.cpus, self._mask_to_restore(thread, force=self._force and judged is None)
            self._judged[thread.key] = judged
        return judged[1]

    def _mask_to_restore(self, thread: ThreadMask, *, force: bool) -> CpuSet:
        before = self._before.get(thread.key)
        if before is None:
            # A new thread: it inherited the change's mask, or another program set its mask.
            inherited = thread.cpus in (*self._given, self._pin_cpus)
            self._ours = self._ours or inherited or self._target.kind == "process"
            return self._prior_of_new if inherited else thread.cpus
        self._ours = True
        is_part = self._was_in_part and thread.cpus <= before
        if force or is_part or thread.cpus in (before, *self._given) or self._on_the_way(thread.cpus):
            self._moved.pop(thread.key, None)
            return before
        self._moved[thread.key] = (
            f"thread {thread.tid} was moved to {thread.cpus} by another program or a later run, and stays there"
        )
        return thread.cpus

    def _on_the_way(self, cpus: CpuSet) -> bool:
        if self._target.kind not in PINNED:
            return False
        return union(mask for mask in self._before.values() if mask <= cpus) == cpus
