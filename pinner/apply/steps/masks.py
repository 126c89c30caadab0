"""The masks of a target before a run and those that runs gave to it, and the passes until no thread is misplaced."""

from collections import Counter
from collections.abc import Callable, Sequence

from pinner.apply.ports import Host
from pinner.model.change import AffinityChange, Target, ThreadMask, masks_of
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import main_thread
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
