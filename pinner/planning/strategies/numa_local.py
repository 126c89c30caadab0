"""Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node, next to its memory and devices."""

from collections.abc import Mapping
from typing import ClassVar

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.plan import LeftOut
from pinner.planning.context import Context, guest_target, plugged
from pinner.planning.strategies import node_choice
from pinner.planning.strategies.common import float_over, floating_warnings, place_emulator, place_host_processes
from pinner.planning.strategy import COMMON, Answer


class NumaLocal:
    """Three CPU sets for the whole host; the vCPU set is divided by node."""

    name: ClassVar[str] = "numa-local"
    summary: ClassVar[str] = (
        "Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node, next to its memory and devices."
    )
    parameters: ClassVar[tuple[str, ...]] = COMMON

    def place(self, context: Context) -> Answer:
        """A guest that fits no node is unplaced and not touched. Raises Invalid, NoFit (see roles.resolve)."""
        resolved = context.resolve()
        roles = resolved.roles
        pools = {node: roles.vcpu & cpus for node, cpus in context.allocatable.nodes.items()}
        chosen, unplaced, free = _choose(context, pools)
        wanted = list(place_host_processes(context, roles))
        for guest in context.guests:
            if guest.uuid in chosen:
                node = chosen[guest.uuid]
                wanted += place_emulator(guest, resolved.emulator_on.get(node, roles.emulator))
                wanted += float_over(guest, pools[node], node_choice.reason(context.snapshot, guest, node))
        warnings = (*resolved.warnings, *floating_warnings(context, roles), *_crowded(free))
        return Answer(roles, tuple(wanted), tuple(unplaced), warnings)


def _choose(
    context: Context, pools: Mapping[node_choice.Node, CpuSet]
) -> tuple[dict[str, node_choice.Node], list[LeftOut], dict[node_choice.Node, int]]:
    """The node of each guest by UUID, the guests that fit no node, and how many CPUs of each pool are left.

    A recorded guest stays on its node, even where another node would be better. Then the others are placed, sorted by
    number of vCPUs, descending.
    """
    capacity = {node: len(pool) for node, pool in pools.items() if pool}
    free = {node: size - _bound_vcpus(context, pools[node]) for node, size in capacity.items()}
    chosen: dict[str, node_choice.Node] = {}
    for guest in context.guests:
        recorded = _nodes_of(context.recorded(guest), pools, context)
        if recorded and capacity[recorded[0]] >= len(plugged(guest)):
            chosen[guest.uuid] = recorded[0]
            free[recorded[0]] -= len(plugged(guest))
    unplaced = []
    for guest in context.guests:
        if guest.uuid in chosen:
            continue
        here = _nodes_of(context.current(guest), pools, context)
        try:
            node = node_choice.choose(context.snapshot, guest, capacity, free, here)
        except NoFit as error:
            unplaced.append(LeftOut(guest_target(guest), error.message))
            continue
        chosen[guest.uuid] = node
        free[node] -= len(plugged(guest))
    return chosen, unplaced, free


def _nodes_of(
    places: Mapping[int, CpuSet], pools: Mapping[node_choice.Node, CpuSet], context: Context
) -> list[node_choice.Node]:
    """The node whose pool has all these CPUs that are online: one node or none."""
    cpus = union(places.values()) & context.allocatable.online
    return [node for node, pool in pools.items() if cpus and cpus <= pool]


def _bound_vcpus(context: Context, pool: CpuSet) -> int:
    """How many vCPUs of guests that stay as they are can run only on the pool."""
    vcpus = (vcpu for guest in context.others for vcpu in guest.vcpus)
    return sum(1 for vcpu in vcpus if vcpu.thread and vcpu.thread.affinity <= pool)


def _crowded(free: Mapping[node_choice.Node, int]) -> list[str]:
    return [
        f"node {node} gets {-left} more vCPUs than it has CPUs for vCPUs" for node, left in free.items() if left < 0
    ]
