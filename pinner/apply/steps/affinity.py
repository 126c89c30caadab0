"""A change of affinity: all threads of a target get the same mask. An undo restores the prior mask of each thread.

libvirt cannot restore "not pinned": after an undo, a live pin that covers the former masks stays in the live XML.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from pinner.apply.converge import PASSES, converge
from pinner.apply.ports import Host, Journal
from pinner.apply.steps.heirs import given_masks, restore_heirs, usual
from pinner.model.change import PINNED, AffinityChange, ThreadKey, ThreadMask, masks_of
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import ApplyFailed, Busy, Gone, PinnerError
from pinner.model.groups import others_that_move
from pinner.model.journal import EARLIER_BOOT, Entry, EntryState
from pinner.model.text import affinities

LOG = logging.getLogger(__name__)

_NEVER = -1
"""A start time that no thread has."""


def before_and_after(change: AffinityChange) -> tuple[str, str]:
    """The masks of the threads before the change, and the mask of all threads after it, for people."""
    return affinities(mask.cpus for mask in change.before), str(change.after)


def is_made(change: AffinityChange, threads: Sequence[ThreadMask]) -> bool:
    """Whether all threads of the target have the mask of the change."""
    return all(thread.cpus == change.after for thread in threads)


def is_begun(change: AffinityChange, threads: Sequence[ThreadMask]) -> bool:
    """Whether a thread has the mask of the change that it did not have before."""
    before = masks_of(change.before)
    return any(thread.cpus == change.after != before.get(thread.key, change.after) for thread in threads)


def is_stale(change: AffinityChange, threads: Sequence[ThreadMask]) -> tuple[str, ...]:
    """The differences between the target's threads and those that the change expects, in words; empty: none.

    Threads that ended, and threads that other threads of the target have created, are expected.
    """
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
    """A change of affinity under way. ``entry`` gets each new thread that is found."""

    def __init__(
        self, entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool, resumed: bool
    ) -> None:
        """``resumed``: the change was begun before, so any thread may have its new mask already."""
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
        """How often each thread was moved."""

    def make(self) -> None:
        """Give every thread of the target its new mask.

        Raises Gone if the target has ended, and the errors of libvirt. Raises ApplyFailed if another program has moved
        the target since the plan was checked (then the host is unchanged), or if the kernel does not grant the mask.
        """
        change = self._change
        threads = self._host.masks(change.target)
        if moved := is_stale(change, self._as_begun(threads)):
            raise ApplyFailed(
                str(change.target), f"{others_that_move(change.target)} moved it just now: {'; '.join(moved)}"
            )
        self._record_born(threads)
        self.touched = True
        if change.target.kind in PINNED:
            self._host.pin(change.target, change.after, persist=self._persist)
        self._converge()

    def _as_begun(self, threads: tuple[ThreadMask, ...]) -> tuple[ThreadMask, ...]:
        """The threads with their masks from before the interruption, except for masks that another program set."""
        if not self._resumed:
            return threads
        before = masks_of(self._change.before)
        made = (thread.cpus == self._change.after for thread in threads)
        return tuple(
            replace(thread, cpus=before.get(thread.key, thread.cpus)) if done else thread
            for thread, done in zip(threads, made, strict=True)
        )

    def _converge(self) -> None:
        """Move misplaced threads until there are none. Without a cpuset controller, libvirt pins only the main thread
        of an emulator. And a busy process creates new threads all the time."""
        target, after = self._change.target, self._change.after
        left = converge(lambda: list(filter(self._is_misplaced, self._host.masks(target))), self._move)
        if reset := [thread for thread in left if self._moves[thread.key] > 1]:
            where = f"thread {reset[0].tid} is on {reset[0].cpus} again each time that pinner moves it to {after}"
            raise ApplyFailed(str(target), f"{where}: {others_that_move(self._change.target)} sets its affinity")
        if left:
            raise ApplyFailed(str(target), f"{len(left)} threads still are not on {after} after {PASSES} passes")

    def _move(self, misplaced: list[ThreadMask]) -> None:
        self._record_born(misplaced)
        for thread in misplaced:
            with suppress(Gone):
                self._host.set_mask(replace(thread, cpus=self._change.after))
                self._moves[thread.key] += 1

    def _is_misplaced(self, thread: ThreadMask) -> bool:
        """Whether the thread must move. If a process's thread is new and its mask is not inherited, another program set
        that mask."""
        if thread.cpus == self._change.after:
            return False
        if self._change.target.kind != "process":
            return True
        return thread.key in self._known or thread.cpus in self._inherited

    def _record_born(self, threads: Iterable[ThreadMask]) -> None:
        """Write the masks of new threads to the journal before these threads are moved."""
        born = tuple(thread for thread in threads if self._is_misplaced(thread) and thread.key not in self._known)
        if born:
            self._known.update(thread.key for thread in born)
            self.entry = replace(self.entry, found=(*self.entry.found, *born))
            self._journal.intend(self.entry)


def undo(
    entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool, force: bool, repin: bool
) -> tuple[EntryState, str]:
    """Restore the masks, and with ``persist`` the definition: ``undone``, or ``gone`` or ``stuck`` with the reason.

    Processes that inherited the mask get the prior mask of the process that they descend from, also if it is gone.

    A thread that another program has moved since then keeps that mask, and is reported. ``force``: the change failed
    just now, so an unknown mask is a result of the change, and is replaced too. ``force`` and ``repin`` pin again,
    because a failed pin may have changed the guest's cpuset, and a pin of a dead process may still be made. libvirt
    makes the new pin after that one.
    """
    problems: list[str] = []
    gone = ""
    try:
        problems += _Masks(entry, change, host, force=force, repin=repin).restore()
    except Gone as error:
        gone = str(error)
    except PinnerError as error:
        problems.append(str(error))
    try:
        problems += restore_heirs(entry, change, host, journal)
    except PinnerError as error:  # also a journal that cannot be written: the other changes are still undone
        problems.append(str(error))
    if persist and change.target.kind in PINNED:
        try:
            host.restore_definition(change.target, entry.definition)
        except Gone as error:
            gone = str(error)
        except PinnerError as error:
            problems.append(f"the persistent definition: {error}")
    if problems:
        return "stuck", "; ".join(problems)
    return ("gone", gone) if gone else ("undone", "")


def undo_earlier_boot(
    entry: Entry, change: AffinityChange, host: Host, journal: Journal, *, persist: bool
) -> tuple[EntryState, str]:
    """Undo a change that was made in an earlier boot of the host: only a definition can still have it.

    A guest that was started from that definition has the change's pins again, in new threads. No thread passes for one
    of the change by its id and start time.
    """
    if not persist or change.target.kind not in PINNED:
        return "gone", EARLIER_BOOT
    change = replace(change, before=tuple(map(of_no_thread, change.before)))
    return undo(replace(entry, found=(), heirs=()), change, host, journal, persist=True, force=False, repin=False)


def of_no_thread(mask: ThreadMask) -> ThreadMask:
    """A mask of an earlier boot of the host: no thread of the present one is taken for its thread."""
    return replace(mask, started=_NEVER)


class _Masks:
    """The mask of each thread of one target after an undo. It is chosen when the thread is first seen."""

    def __init__(self, entry: Entry, change: AffinityChange, host: Host, *, force: bool, repin: bool) -> None:
        self._target = change.target
        self._given = given_masks(entry, change, host)
        self._host = host
        self._force = force
        self._repin = repin or force
        self._before = masks_of((*change.before, *entry.found))
        self._usual = usual(change.target, change.before)
        self._wanted: dict[ThreadKey, CpuSet] = {}
        self._ours = False
        """Whether the change pinned at least one of the threads, or a thread inherited its mask."""
        self._pinned: CpuSet | None = None
        self._problems: list[str] = []
        self._refused: dict[ThreadKey, str] = {}
        """Why a thread cannot get its prior mask. The other threads still get theirs."""

    def restore(self) -> list[str]:
        """Give every thread its mask, and return the problems in words.

        Raises like Host, and Gone if all threads are new and none has the change's mask.
        """
        if self._repin:
            try:
                self._pin()
            except Busy as error:
                # Even if the masks are right now, the overdue call may still change them.
                self._problems.append(str(error))
            except PinnerError as error:
                LOG.info("masks are restored without libvirt: %s", error)
        left = converge(self._misplaced, self._move)
        if left:
            self._problems.append(
                f"threads {', '.join(str(thread.tid) for thread in left)} do not stay on their prior mask"
            )
        if self._refused:
            more = f" (and {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
            self._problems.append(next(iter(self._refused.values())) + more)
        if not self._ours:
            raise Gone(f"{self._target} of that run (it was restarted since)")
        return self._problems

    def _misplaced(self) -> list[ThreadMask]:
        misplaced = (thread for thread in self._host.masks(self._target) if self._prior(thread) != thread.cpus)
        return [thread for thread in misplaced if thread.key not in self._refused]

    def _move(self, misplaced: list[ThreadMask]) -> None:
        if self._target.kind in PINNED and self._pinned is None:
            self._pin()
            return
        for thread in misplaced:
            try:
                self._host.set_mask(replace(thread, cpus=self._prior(thread)))
            except Gone:
                continue
            except ApplyFailed as error:
                self._refused[thread.key] = str(error)

    def _pin(self) -> None:
        """Pin through libvirt to all CPUs that any thread needs, so that the cpuset allows every single mask."""
        if self._target.kind in PINNED:
            cpus = union(self._prior(thread) for thread in self._host.masks(self._target))
            self._host.pin(self._target, cpus, persist=False)
            self._pinned = cpus

    def _prior(self, thread: ThreadMask) -> CpuSet:
        """The mask to restore. It is chosen when the thread is first seen: later the mask may be a result of
        ``_pin``."""
        if thread.key not in self._wanted:
            self._wanted[thread.key] = self._first_seen(thread)
        return self._wanted[thread.key]

    def _first_seen(self, thread: ThreadMask) -> CpuSet:
        before = self._before.get(thread.key)
        if before is None:
            # A new thread: it inherited the change's mask, or another program set its mask.
            inherited = thread.cpus in (*self._given, self._pinned)
            self._ours = self._ours or inherited or self._target.kind == "process"
            return self._usual if inherited else thread.cpus
        self._ours = True
        if self._force or thread.cpus in (before, *self._given) or self._on_the_way(thread.cpus):
            return before
        self._problems.append(
            f"thread {thread.tid} was moved to {thread.cpus} by another program or a later run, and stays there"
        )
        return thread.cpus

    def _on_the_way(self, cpus: CpuSet) -> bool:
        """Whether an interrupted undo may have set this mask: ``_pin`` sets one mask on all threads before each thread
        gets its own."""
        if self._target.kind not in PINNED:
            return False
        return union(mask for mask in self._before.values() if mask <= cpus) == cpus
