"""A change of a state: of a partition, of the CPUs of unbound kernel work, or of a setting. A partition takes CPUs from
every other cgroup. Before Linux 6.2 that also resets masks set by hand, before 7.0 those of unbound kernel threads. So
the journal has the masks of all threads; they are set again after the change, and restored by an undo."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product

from pinner.apply.ports import Host, Journal
from pinner.model.change import StateChange, ThreadKey, ThreadMask, masks_of
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, PinnerError
from pinner.model.kinds import KINDS
from pinner.model.run.journal import Entry, EntryState
from pinner.model.states import Coalescing, GuestCpus, Number, PartitionKind, PartitionState, State, cpus_of

Masks = Mapping[ThreadKey, CpuSet]


def is_made(change: StateChange, now: State) -> bool:
    return _chosen(now) == _chosen(change.after)


def is_stale(change: StateChange, now: State) -> tuple[str, ...]:
    if _chosen(now) == _chosen(change.before):
        return ()
    return (f"{change.target} is '{now}', no longer '{change.before}'",)


class StateStep:
    """``entry`` gets the masks of all threads that ``Host.masks`` has."""

    def __init__(self, entry: Entry, change: StateChange, host: Host, journal: Journal, *, resumed: bool) -> None:
        self.entry = entry
        self.touched = False
        self._resumed = resumed
        self._change = change
        self._host = host
        self._journal = journal

    def make(self) -> None:
        """Set the state, then each thread's mask again, restricted to the CPUs that the state allows."""
        change = self._change
        state = self._host.state(change.target)
        moved = is_stale(change, state)
        ours = self._resumed and (_chosen(state) in _on_the_way(change) or _may_be_granted(self.entry, change, state))
        if moved and not ours:
            raise ApplyFailed(str(change.target), f"another program changed it just now: {'; '.join(moved)}")
        known = masks_of(self.entry.found)
        # A mask that is known already may now be a result of the interrupted change.
        if unknown := tuple(thread for thread in self._host.masks(change.target) if thread.key not in known):
            self.entry = replace(self.entry, found=(*self.entry.found, *unknown))
            self._journal.intend(self.entry)
        self.touched = True
        self._host.set_state(change.target, change.after)
        before = masks_of(self.entry.found)
        for thread in self._host.masks(change.target):
            _set_mask(self._host, thread, before.get(thread.key, thread.cpus) & thread.cpus)


def undo(entry: Entry, change: StateChange, host: Host, *, force: bool, half_made: bool) -> tuple[EntryState, str]:
    """``half_made``: the kernel may have widened masks that were not set again."""
    target = change.target
    try:
        threads = host.masks(target)
        wanted = _wanted(entry, change, host, threads, half_made=half_made or force)
        gone = ""
        try:
            now = host.state(target)
        except Gone as error:
            # The partition ended with its cgroup. The kernel has overwritten masks of its own threads then, too.
            gone = str(error)
        else:
            ours = _written(now) in _on_the_way(change, entry.former) or _is_displaced(change, now, host.online())
            ours = ours or force or (half_made and _may_be_granted(entry, change, now))
            if not ours:
                return "stuck", f"{target} was set to '{now}' by another program or a later run, and stays so"
            # Without a mask in the journal the change was not begun; setting the state may then reset unknown masks.
            kind = KINDS[target.kind]
            unfinished = kind.is_late or (kind.leaves_file and not force)
            if is_stale(change, now) or (half_made and entry.found) or unfinished:
                host.set_state(target, change.before)
        problems = _restore(host, host.masks(target), masks_of(threads), wanted, _taken(entry, change))
    except Gone as error:
        return "gone", str(error)
    except PinnerError as error:
        return "stuck", str(error)
    if problems:
        return "stuck", "; ".join(problems)
    return ("gone", gone) if gone else ("undone", "")


def has_left_masks(entry: Entry, change: StateChange, host: Host) -> bool:
    """Whether a kernel thread still has a mask of a partition whose cgroup has ended."""
    if change.target.kind != "partition":
        return False
    threads, kernel = host.masks(change.target), host.kernel_threads()
    wanted = _wanted(entry, change, host, threads, half_made=False)
    return any(thread.key in kernel and wanted[thread.key] != thread.cpus for thread in threads)


def _taken(entry: Entry, change: StateChange) -> tuple[CpuSet, ...]:
    return (*entry.former, cpus_of(change.after))


def _wanted(
    entry: Entry, change: StateChange, host: Host, threads: Iterable[ThreadMask], *, half_made: bool
) -> dict[ThreadKey, CpuSet]:
    """Kernel threads (kswapd, kcompactd) get all CPUs outside of partitions from the kernel, and from nobody else."""
    known, taken = masks_of(entry.found), _taken(entry, change)
    kernel = host.kernel_threads() if change.target.kind == "partition" else frozenset()
    return {
        thread.key: _prior(
            known.get(thread.key, thread.cpus), taken, thread, half_made=half_made or thread.key in kernel
        )
        for thread in threads
    }


def _on_the_way(change: StateChange, former: Iterable[CpuSet] = ()) -> frozenset[State]:
    """A partition gets its CPUs and its kind one after the other, a card that adapts its numbers first. ``former``: the
    CPUs of earlier runs."""
    ends = frozenset({_chosen(change.before), _chosen(change.after)})
    match change.before, change.after:
        case PartitionState() as before, PartitionState() as after:
            kinds: set[PartitionKind] = {before.kind, after.kind, "member"}
            return ends | {
                PartitionState(kind, cpus) for kind, cpus in product(kinds, (before.cpus, after.cpus, *former))
            }
        case Coalescing() as before, Coalescing() as after:
            return ends | {replace(end, is_adaptive=False) for end in (before, after)}
    return ends | frozenset(former)


def _is_displaced(change: StateChange, now: State, online: CpuSet) -> bool:
    """Whether the kernel has moved an interrupt to all other CPUs, because those of the change went offline. A single
    CPU may be another program's choice."""
    others = online - cpus_of(change.after)
    return change.target.kind == "irq" and now == others and len(others) > 1


def _may_be_granted(entry: Entry, change: StateChange, now: State) -> bool:
    """Whether the kernel granted a part of the change, and the process died before it read that."""
    if entry.state != "intent":
        return False
    match change.before, change.after, now:
        case Number(value=before), Number(value=after), Number(value=granted):
            return min(before, after) < granted < max(before, after)
        case Coalescing() as first, Coalescing() as last, Coalescing() as now:
            ends = (0 if first.is_adaptive else first.usecs, last.usecs)  # a driver rounds the time alone
            return replace(now, usecs=last.usecs) == last and min(ends) < now.usecs < max(ends)
        case CpuSet(), CpuSet() as after, CpuSet() as granted:
            return bool(granted) and granted <= after
        case GuestCpus(), GuestCpus(vcpus=after), GuestCpus(vcpus=granted):
            return bool(granted) and granted <= after
    return False


def _chosen(state: State) -> State:
    return state.chosen if isinstance(state, Coalescing) else state


def _written(state: State) -> State:
    """Without the note ``invalid`` of the kernel: the partition shares CPUs with another one."""
    return replace(state, invalid="") if isinstance(state, PartitionState) else _chosen(state)


def _prior(before: CpuSet, taken: Iterable[CpuSet], thread: ThreadMask, *, half_made: bool) -> CpuSet:
    """``before``, if a change that has ``taken`` CPUs caused the present mask; else that one."""
    for cpus in taken:
        inside, outside = before & cpus, before - cpus
        displaced = not outside or (half_made and thread.cpus >= outside)
        if displaced or thread.cpus in (before, inside, outside):
            return before
    return thread.cpus


def _restore(
    host: Host, threads: tuple[ThreadMask, ...], before: Masks, wanted: Masks, taken: tuple[CpuSet, ...]
) -> list[str]:
    """``before``: the masks by which the ``wanted`` ones were chosen. Since then the kernel has displaced some, and
    another program may have set some."""
    problems = []
    for thread in threads:
        prior = wanted.get(thread.key, thread.cpus)
        if thread.cpus != before.get(thread.key):
            prior = _prior(prior, taken, thread, half_made=True)
        try:
            _set_mask(host, thread, prior)
        except PinnerError as error:
            problems.append(str(error))
    return problems


def _set_mask(host: Host, thread: ThreadMask, cpus: CpuSet) -> None:
    """Where the partition leaves no CPU of a mask, the kernel's choice stays."""
    if cpus and cpus != thread.cpus:
        with suppress(Gone):
            host.set_mask(replace(thread, cpus=cpus), thread.cpus)
