"""The difference between the wanted affinities and states and the actual ones."""

from pinner.model.change import AffinityChange, PlannedChange, StateChange, ThreadMask
from pinner.model.kinds import KINDS
from pinner.model.plan.plan import Wanted
from pinner.planning.changes.ordering import ranks
from pinner.planning.request.context import Context


def changes(context: Context, wanted: tuple[Wanted, ...]) -> tuple[PlannedChange, ...]:
    """``before`` has every thread of a target, also those that have the wanted mask, so that an undo is exact."""
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
    return tuple(sorted(found, key=lambda each: (KINDS[each.target.kind].order or 0, rank.get(each.target.owner, 0))))
