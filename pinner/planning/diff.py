"""What is wanted, less what is so already: the changes."""

from pinner.model.change import Change, TargetKind, ThreadMask
from pinner.model.plan import Wanted
from pinner.planning.context import Context

_ORDER: dict[TargetKind, int] = {
    "process": 0,
    "emulator": 1,
    "vhost": 1,
    "iothread": 1,
    "vcpu": 2,
    "workqueue": 3,
    "partition": 4,
}
"""First the host's processes clear the room, then QEMU's own threads; vCPUs move last of the threads, into quiet CPUs.
Partitions close behind them, each after the one that holds it."""


def changes(context: Context, wanted: tuple[Wanted, ...]) -> tuple[Change, ...]:
    """A change for each target of which at least one thread may run elsewhere than wanted.

    ``before`` has every thread of the target, also those that are right already, so that an undo is exact.
    """
    found = []
    for want in sorted(wanted, key=lambda want: _ORDER[want.target.kind]):
        if want.state:
            before = context.settings[want.target]
            if before != want.state:
                found.append(Change(want.target, (), want.cpus, want.reason, (before, want.state)))
            continue
        threads = context.threads[want.target]
        if any(thread.affinity != want.cpus for thread in threads):
            masks = tuple(ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads)
            found.append(Change(want.target, masks, want.cpus, want.reason))
    return tuple(found)
