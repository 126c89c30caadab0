"""Takes one change back: every thread gets exactly the mask that it had.

"Not pinned" cannot be given back to libvirt: a live pin that covers the former masks stays in the domain's live XML.
"""

import logging
from collections import Counter
from dataclasses import replace

from pinner.apply.converge import converge
from pinner.apply.memory import take_memory_back
from pinner.apply.ports import Host
from pinner.apply.setting import put_back
from pinner.apply.staleness import key, masks_of
from pinner.model.change import PINNED, SETTINGS, Change, MemoryChange, ThreadMask
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import ApplyFailed, Busy, Gone, PinnerError
from pinner.model.journal import Entry, EntryState

LOG = logging.getLogger(__name__)


def undo(
    entry: Entry, host: Host, *, persist: bool, force: bool = False, repin: bool = False
) -> tuple[EntryState, str]:
    """Restore the masks (or the state, or where memory lay), and with ``persist`` the definition: ``undone``; ``gone``
    or ``stuck``, and why.

    A thread that somebody else has moved since is left where it is, and reported; with ``force`` (the change failed
    just now, so an odd mask is its doing) it is not. A failed pin may have changed the guest's cpuset although the
    masks look right, and one that was under way when its caller died may yet be made: ``force`` and ``repin`` pin
    again, which libvirt does after it.
    """
    change = entry.change
    if isinstance(change, MemoryChange):
        return take_memory_back(entry, change, host)
    if change.target.kind in SETTINGS:
        return put_back(entry, change, host, force=force, half_made=repin)
    problems: list[str] = []
    gone = ""
    try:
        problems += _Masks(entry, change, host, force=force, repin=repin).restore()
    except Gone as error:
        gone = str(error)
    except PinnerError as error:
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


class _Masks:
    """Where each thread of one target belongs, as it comes into sight."""

    def __init__(self, entry: Entry, change: Change, host: Host, *, force: bool, repin: bool) -> None:
        self._target = change.target
        self._after = change.after
        self._kept = change.after & host.online()
        """What the kernel leaves of our mask while CPUs of it are offline."""
        self._host = host
        self._force = force
        self._repin = repin or force
        self._before = masks_of((*change.before, *entry.found))
        self._usual = _usual(change)
        self._wanted: dict[tuple[int, int], CpuSet] = {}
        self._ours = False
        """Whether any thread is one that was pinned, or bears the mask of one."""
        self._pinned: CpuSet | None = None
        self._problems: list[str] = []
        self._refused: dict[tuple[int, int], str] = {}
        """Why a thread cannot have its mask: the others get theirs all the same."""

    def restore(self) -> list[str]:
        """Give every thread its mask; what could not be done, in words. Raises what Host raises, and Gone where all
        threads are others now and none bears our mask."""
        if self._repin:
            try:
                self._pin()
            except Busy as error:
                # Right masks are no proof then: an overdue call may yet change them.
                self._problems.append(str(error))
            except PinnerError as error:
                LOG.info("masks are restored without libvirt: %s", error)
        left = converge(self._misplaced, self._move)
        if left:
            self._problems.append(
                f"threads {', '.join(str(thread.tid) for thread in left)} do not keep the mask they had"
            )
        if self._refused:
            more = f" (and {len(self._refused) - 1} more)" if len(self._refused) > 1 else ""
            self._problems.append(next(iter(self._refused.values())) + more)
        if not self._ours:
            raise Gone(f"{self._target} of then (it was started anew since)")
        return self._problems

    def _misplaced(self) -> list[ThreadMask]:
        misplaced = (thread for thread in self._host.masks(self._target) if self._belongs(thread) != thread.cpus)
        return [thread for thread in misplaced if key(thread) not in self._refused]

    def _move(self, misplaced: list[ThreadMask]) -> None:
        if self._target.kind in PINNED and self._pinned is None:
            self._pin()
            return
        for thread in misplaced:
            try:
                self._host.set_mask(replace(thread, cpus=self._belongs(thread)))
            except Gone:
                continue
            except ApplyFailed as error:
                self._refused[key(thread)] = str(error)

    def _pin(self) -> None:
        """Through libvirt, to all that any thread needs; the cpuset no longer stands in the way of single masks."""
        if self._target.kind in PINNED:
            cpus = union(self._belongs(thread) for thread in self._host.masks(self._target))
            self._host.pin(self._target, cpus, persist=False)
            self._pinned = cpus

    def _belongs(self, thread: ThreadMask) -> CpuSet:
        """Decided when a thread is first seen: later its mask may be our own doing."""
        if key(thread) not in self._wanted:
            self._wanted[key(thread)] = self._first_seen(thread)
        return self._wanted[key(thread)]

    def _first_seen(self, thread: ThreadMask) -> CpuSet:
        before = self._before.get(key(thread))
        if before is None:
            # Born after the change: it inherited our mask, or somebody placed it.
            inherited = thread.cpus in (self._after, self._kept, self._pinned)
            self._ours = self._ours or inherited or self._target.kind == "process"
            return self._usual if inherited else thread.cpus
        self._ours = True
        if self._force or thread.cpus in (before, self._after, self._kept) or self._on_the_way(thread.cpus):
            return before
        self._problems.append(f"thread {thread.tid} was moved to {thread.cpus} by somebody else and is left there")
        return thread.cpus

    def _on_the_way(self, cpus: CpuSet) -> bool:
        """Whether an undo that was interrupted may have left a mask so: what ``_pin`` gives to all, before each thread
        gets its own."""
        if self._target.kind not in PINNED:
            return False
        return union(mask for mask in self._before.values() if mask <= cpus) == cpus


def _usual(change: Change) -> CpuSet:
    """What a thread without a past gets: the mask that the process's first thread had, or most of the emulator's."""
    masks = {thread.tid: thread.cpus for thread in change.before}
    most = Counter(masks.values()).most_common(1)[0][0]
    return masks.get(int(change.target.owner), most) if change.target.kind == "process" else most
