"""Changes and takes back what has a state instead of threads: cgroup partitions and the CPUs of unbound work.

A partition takes CPUs from every other cgroup, and before Linux 6.2 that also undoes masks that were set by hand. So
the masks of all threads are journaled before, asserted again after, and restored when the partition is taken back.
"""

import re
from contextlib import suppress
from dataclasses import replace
from itertools import product

from pinner.apply.ports import Host, Journal
from pinner.apply.staleness import altered, key, masks_of
from pinner.model.change import Change, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, PinnerError
from pinner.model.journal import Entry, EntryState

Masks = dict[tuple[int, int], CpuSet]


class Setting:
    """One change of a state under way; ``entry`` grows by every thread's mask."""

    def __init__(self, entry: Entry, change: Change, host: Host, journal: Journal, *, resumed: bool = False) -> None:
        """``resumed``: it was begun before, and may be made, or half made."""
        self.entry = entry
        self._resumed = resumed
        self._change = change
        self.touched = False
        """Whether anything may have been written to the host."""
        self._host = host
        self._journal = journal

    def make(self) -> None:
        """Set the state, and assert what it leaves of every thread's mask.

        Raises Gone where the cgroup has ended, ApplyFailed where somebody changed it since the plan was checked (then
        nothing is touched) or where the kernel does not grant it.
        """
        change = self._change
        state = self._host.state(change.target)
        moved = list(altered(change, state))
        if moved and not (self._resumed and state in _steps(change)):
            raise ApplyFailed(str(change.target), f"somebody else changed it just now: {'; '.join(moved)}")
        known = masks_of(self.entry.found)
        # A mask that is known already may be what an interrupted change has left of it.
        if born := tuple(thread for thread in self._host.masks(change.target) if key(thread) not in known):
            self.entry = replace(self.entry, found=(*self.entry.found, *born))
            self._journal.intend(self.entry)
        self.touched = True
        self._host.set_state(change.target, change.states[1])
        before = masks_of(self.entry.found)
        for thread in self._host.masks(change.target):
            _assert(self._host, thread, before.get(key(thread), thread.cpus) & thread.cpus)


def put_back(
    entry: Entry, change: Change, host: Host, *, force: bool = False, half_made: bool = False
) -> tuple[EntryState, str]:
    """Restore the state and every thread's mask: ``undone``; ``gone`` or ``stuck``, and why.

    A state that somebody else has set since is left and reported, unless ``force`` says that the change failed just
    now. A thread that somebody else has moved since keeps the mask that it was given. ``half_made`` says that the
    change may have been interrupted before it asserted the masks: then those that the kernel has widened are not so
    by somebody else's doing.
    """
    before = change.states[0]
    target = change.target
    try:
        now = host.state(target)
        if _set(now) not in _steps(change) and not force:
            return "stuck", f"{target} is {now!r} by somebody else's doing and is left so"
        known = masks_of(entry.found)
        belongs = {
            key(thread): _belongs(known.get(key(thread), thread.cpus), change, thread, half_made=half_made or force)
            for thread in host.masks(target)
        }
        # Without a mask in the journal it was not begun, and setting it may cost masks that nobody knows then.
        if now != before or (half_made and entry.found):
            host.set_state(target, before)
        problems = _restore(host, host.masks(target), belongs)
    except Gone as error:
        return "gone", str(error)
    except PinnerError as error:
        return "stuck", str(error)
    return ("stuck", "; ".join(problems)) if problems else ("undone", "")


def _steps(change: Change) -> set[str]:
    """The states that lie on the way from one of the change's states to the other: a partition gets its CPUs and its
    kind one after the other."""
    kinds, cpus = zip(*(state.partition(" ")[::2] for state in change.states), strict=True)
    made = {f"{kind} {listed}".strip() for kind, listed in product((*kinds, "member"), cpus)}
    return {*change.states, *(made if change.target.kind == "partition" else ())}


def _set(state: str) -> str:
    """What was written. A partition that shares CPUs with one just taken back is invalid to the kernel, but nobody
    has set it otherwise."""
    return re.sub(r" invalid \(.*\)", "", state)


def _belongs(before: CpuSet, change: Change, thread: ThreadMask, *, half_made: bool) -> CpuSet:
    """The mask ``before`` the change, where the present one is what the change has left of it."""
    taken = change.after
    inside, outside = before & taken, before - taken
    displaced = not inside or not outside or (half_made and thread.cpus >= outside)
    return before if displaced or thread.cpus in (before, inside, outside) else thread.cpus


def _restore(host: Host, threads: tuple[ThreadMask, ...], belongs: Masks) -> list[str]:
    problems = []
    for thread in threads:
        try:
            _assert(host, thread, belongs.get(key(thread), thread.cpus))
        except PinnerError as error:
            problems.append(str(error))
    return problems


def _assert(host: Host, thread: ThreadMask, cpus: CpuSet) -> None:
    """Where the partition leaves nothing of a mask, the kernel's choice stays."""
    if cpus and cpus != thread.cpus:
        with suppress(Gone):
            host.set_mask(replace(thread, cpus=cpus))
