"""The changes: the difference between the wanted affinities and states and the actual ones."""

from pinner.model.change import AffinityChange, PlannedChange, StateChange, TargetKind, ThreadMask
from pinner.model.plan.plan import Wanted
from pinner.planning.changes.ordering import ranks
from pinner.planning.request.context import Context

_ORDER: dict[TargetKind, int] = {
    "irq": 0,
    "rps": 0,
    "sysctl": 0,
    "ring": 0,
    "governor": 0,
    "coalescing": 0,
    "irqbalance": 0,
    "queues": 0,
    "guest_rps": 0,
    "weight": 0,
    "process": 0,
    "emulator": 1,
    "vhost": 1,
    "iothread": 1,
    "vcpu": 2,
    "workqueue": 3,
    "partition": 4,
}
"""First the host's processes leave the CPUs, then QEMU's own threads move; vCPUs move last of the threads, to CPUs that
are quiet by then. A guest leaves its CPUs before another guest gets them. Partitions come after all threads, each after
its parent."""


def changes(context: Context, wanted: tuple[Wanted, ...]) -> tuple[PlannedChange, ...]:
    """A change for each target whose state, or the mask of at least one thread, differs from the wanted one.

    ``before`` has every thread of the target, also those that have the wanted mask, so that an undo is exact.
    """
    found: list[PlannedChange] = []
    for want in wanted:
        if want.state is not None:
            before = context.settings[want.target]
            if before != want.state:
                found.append(StateChange(want.target, before, want.state, want.reason))
            continue
        threads, bits = context.threads[want.target], want.cpus.bits
        if not threads or [thread for thread in threads if thread.affinity.bits != bits]:
            masks = tuple([ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads])
            found.append(AffinityChange(want.target, masks, want.cpus, want.reason))
    rank = ranks(found)
    return tuple(sorted(found, key=lambda each: (_ORDER[each.target.kind], rank.get(each.target.owner, 0))))
