"""The masks of a target's threads from before a change, restored by its undo."""

import logging
from contextlib import suppress
from dataclasses import replace

from pinner.apply.ports import Host
from pinner.apply.steps.converge import converge
from pinner.apply.steps.inheritors import given_masks, prior_mask
from pinner.model.change import AffinityChange, ThreadKey, ThreadMask, masks_of
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import ApplyFailed, Busy, Gone, PinnerError
from pinner.model.kinds import PINNED
from pinner.model.run.journal import IN_PART, Entry
from pinner.model.text import listed

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
        self._wanted: dict[ThreadKey, CpuSet] = {}
        self._ours = False
        """Whether the change pinned one of the threads, or a thread inherited its mask."""
        self._pinned: CpuSet | None = None
        self._problems: list[str] = []
        self._refused: dict[ThreadKey, str] = {}
        """Why a thread cannot get its prior mask."""

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
        left = converge(self._misplaced, self._move)
        if left:
            self._problems.append(
                f"threads {', '.join(str(thread.tid) for thread in left)} do not stay on their prior mask"
            )
        if self._refused:
            self._problems.append(listed(list(self._refused.values()), 1, "; "))
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
            prior = self._prior(thread)
            try:
                self._host.set_mask(replace(thread, cpus=prior))
            except Gone:
                continue
            except ApplyFailed as error:
                self._refused[thread.key] = self._restore_in_part(thread, prior) or str(error)

    def _restore_in_part(self, thread: ThreadMask, prior: CpuSet) -> str:
        """Returns which CPUs are offline, in words; empty where the kernel refuses the mask for another reason."""
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
        """Pin through libvirt to all online CPUs that any thread needs, so that the cpuset allows every single mask."""
        if self._target.kind in PINNED:
            cpus = union(self._prior(thread) for thread in self._host.masks(self._target))
            pinned = (cpus & self._host.online()) or cpus
            self._host.pin(self._target, pinned, persist=False)
            self._pinned = pinned

    def _prior(self, thread: ThreadMask) -> CpuSet:
        """Chosen when the thread is first seen: later its mask may be a result of ``_pin``."""
        if thread.key not in self._wanted:
            self._wanted[thread.key] = self._first_seen(thread)
        return self._wanted[thread.key]

    def _first_seen(self, thread: ThreadMask) -> CpuSet:
        before = self._before.get(thread.key)
        if before is None:
            # A new thread: it inherited the change's mask, or another program set its mask.
            inherited = thread.cpus in (*self._given, self._pinned)
            self._ours = self._ours or inherited or self._target.kind == "process"
            return self._prior_of_new if inherited else thread.cpus
        self._ours = True
        is_part = self._was_in_part and thread.cpus <= before
        if self._force or is_part or thread.cpus in (before, *self._given) or self._on_the_way(thread.cpus):
            return before
        self._problems.append(
            f"thread {thread.tid} was moved to {thread.cpus} by another program or a later run, and stays there"
        )
        return thread.cpus

    def _on_the_way(self, cpus: CpuSet) -> bool:
        """Whether an interrupted undo may have set this mask in ``_pin``, before each thread gets its own."""
        if self._target.kind not in PINNED:
            return False
        return union(mask for mask in self._before.values() if mask <= cpus) == cpus
