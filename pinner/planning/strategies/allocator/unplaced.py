"""Why a guest has no place, and what would make room for it."""

from collections.abc import Mapping

from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice
from pinner.planning.strategies.allocator.free_cpus import FreeCpus, GuestAllocation, needs


def why_unplaced(context: Context, free_cpus: FreeCpus, guest: Guest, places: Mapping[str, GuestAllocation]) -> str:
    """Why the guest has no place, with the numbers, and the smallest change that would make room."""
    size, whole = needs(guest), free_cpus.whole
    try:
        if free_cpus.is_packed(guest) and size > max(whole.values(), default=0):
            node_choice.choose(context.snapshot, guest, context.groups(guest)[0], whole, whole, memory=free_cpus.memory)
        free_cpus.take_best(guest)
    except NoFit as error:
        return f"{error.message}{_remedy(context, free_cpus, guest, places)}"
    raise AssertionError(f"guest {guest.name} fits, but has no place")


def _remedy(context: Context, free_cpus: FreeCpus, guest: Guest, places: Mapping[str, GuestAllocation]) -> str:
    """The fewest CPUs that would make room for a guest of one node, and the smallest guest that has them."""
    size, free, whole = needs(guest), free_cpus.free, free_cpus.whole
    if not free_cpus.is_packed(guest):
        return ""
    group = context.groups(guest)[0]
    nodes = node_choice.with_memory(context.snapshot, guest, group, free, free_cpus.memory)
    if not nodes:
        return ""
    node, such = max(nodes, key=lambda node: free[node]), ""
    if size > max(whole.values()):
        lacking = size - sum(whole.values())
        where = " on all nodes together" if len(whole) > 1 else _on(node)
    else:
        lacking, where = size - free[node], _on(node)
        leaving = [each for each in context.guests if each.uuid in places and places[each.uuid].nodes == (node,)]
        enough = [each for each in leaving if needs(each) >= lacking]
        if enough:
            such = f", such as those of guest {min(enough, key=lambda each: (needs(each), each.uuid)).name},"
    what = "core" if context.request.smt == "isolate" else "CPU"
    return f"; {lacking} more {what}{'s' * (lacking > 1)}{where}{such} would make room" if lacking > 0 else ""


def _on(node: NodeId) -> str:
    return "" if node is None else f" on node {node}"
