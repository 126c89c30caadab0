"""Makes one change: journaled before it is made, read back from the kernel after."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from pinner.apply.converge import PASSES, converge
from pinner.apply.ports import Host, Journal
from pinner.apply.staleness import differences, key, masks_of
from pinner.model.change import PINNED, Change, ThreadMask
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.journal import Entry


class Move:
    """One change under way; ``entry`` grows by the threads that are found meanwhile."""

    def __init__(
        self, entry: Entry, change: Change, host: Host, journal: Journal, *, persist: bool, resumed: bool = False
    ) -> None:
        """``resumed``: it was begun before, so any thread may be where it is to go."""
        self.entry = entry
        self._resumed = resumed
        self.touched = False
        """Whether anything may have been written to the host."""
        self._change = change
        self._host = host
        self._journal = journal
        self._persist = persist
        known = (*change.before, *entry.found)
        self._known = {key(thread) for thread in known}
        self._inherited = {thread.cpus for thread in known}

    def make(self) -> None:
        """Give every thread of the target its new mask.

        Raises Gone where the target has ended, ApplyFailed where somebody moved it since the plan was checked (then
        nothing is touched), where the kernel does not grant the mask, and whatever libvirt answers.
        """
        change = self._change
        threads = self._host.masks(change.target)
        if moved := list(differences(change, self._as_begun(threads))):
            raise ApplyFailed(str(change.target), f"somebody else moved it just now: {'; '.join(moved)}")
        self._adopt(threads)
        self.touched = True
        if change.target.kind in PINNED:
            self._host.pin(change.target, change.after, persist=self._persist)
        self._converge()

    def _as_begun(self, threads: tuple[ThreadMask, ...]) -> tuple[ThreadMask, ...]:
        """The threads as they were before the interruption, but for what somebody else did."""
        if not self._resumed:
            return threads
        before = masks_of(self._change.before)
        made = (thread.cpus == self._change.after for thread in threads)
        return tuple(
            replace(thread, cpus=before.get(key(thread), thread.cpus)) if done else thread
            for thread, done in zip(threads, made, strict=True)
        )

    def _converge(self) -> None:
        """Move every stray until none is left. libvirt's pin moves an emulator's threads only where the cpuset
        controller is, else its main thread alone; and a busy process bears threads all the time."""
        target, after = self._change.target, self._change.after
        left = converge(lambda: list(filter(self._is_misplaced, self._host.masks(target))), self._move)
        if left:
            raise ApplyFailed(str(target), f"{len(left)} threads still are not on {after} after {PASSES} passes")

    def _move(self, misplaced: list[ThreadMask]) -> None:
        self._adopt(misplaced)
        for thread in misplaced:
            with suppress(Gone):
                self._host.set_mask(replace(thread, cpus=self._change.after))

    def _is_misplaced(self, thread: ThreadMask) -> bool:
        """A thread of a process that has neither a known name nor an inherited mask was placed by somebody else."""
        if thread.cpus == self._change.after:
            return False
        if self._change.target.kind != "process":
            return True
        return key(thread) in self._known or thread.cpus in self._inherited

    def _adopt(self, threads: Iterable[ThreadMask]) -> None:
        """Journal the masks of those that nobody knew of, before they are touched."""
        born = tuple(thread for thread in threads if self._is_misplaced(thread) and key(thread) not in self._known)
        if born:
            self._known.update(map(key, born))
            self.entry = replace(self.entry, found=(*self.entry.found, *born))
            self._journal.intend(self.entry)
