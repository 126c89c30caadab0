"""Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node, next to its memory and devices."""

from collections.abc import Mapping
from typing import ClassVar

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest import Guest
from pinner.model.plan import LeftOut
from pinner.planning.context import Context, guest_target
from pinner.planning.numa_bounds import VcpuGroup
from pinner.planning.strategies import node_choice
from pinner.planning.strategies.common import (
    beside,
    divided,
    float_over,
    floating_warnings,
    place_emulator,
    place_host_processes,
)
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
        context, left_out = divided(context, roles)
        pools = {node: roles.vcpu & cpus for node, cpus in context.allocatable.nodes.items()}
        chosen, unplaced, free = _choose(context, pools)
        wanted = list(place_host_processes(context, roles))
        for guest in context.guests:
            if homes := chosen.get(guest.uuid):
                wanted += place_emulator(guest, beside(context, resolved, guest, homes.values()))
                for group, node in homes.items():
                    why = node_choice.reason(context.snapshot, guest, node)
                    wanted += float_over(guest, group, pools[node], why)
        warnings = (*resolved.warnings, *floating_warnings(context, roles), *_crowded(free))
        return Answer(roles, tuple(wanted), (*left_out, *unplaced), warnings)


_Homes = dict[VcpuGroup, node_choice.Node]
"""The node of each group of a guest's vCPUs."""


def _choose(
    context: Context, pools: Mapping[node_choice.Node, CpuSet]
) -> tuple[dict[str, _Homes], list[LeftOut], dict[node_choice.Node, int]]:
    """The nodes of each guest by UUID, the guests that fit no node, and how many CPUs of each pool are left.

    A recorded guest stays on its nodes, even where others would be better. Then the others are placed, sorted by
    number of vCPUs, descending.
    """
    free = {node: len(pool) - _bound_vcpus(context, pool) for node, pool in pools.items() if pool}
    chosen: dict[str, _Homes] = {}
    for guest in context.guests:
        if homes := _recorded_homes(context, guest, pools):
            chosen[guest.uuid] = homes
            free = _less(free, homes)
    unplaced = []
    for guest in context.guests:
        if guest.uuid in chosen:
            continue
        try:
            homes = _homes(context, guest, pools, free)
        except NoFit as error:
            unplaced.append(LeftOut(guest_target(guest), error.message))
            continue
        chosen[guest.uuid] = homes
        free = _less(free, homes)
    return chosen, unplaced, free


def _recorded_homes(context: Context, guest: Guest, pools: Mapping[node_choice.Node, CpuSet]) -> _Homes:
    """The recorded node of each group; empty where a group has none, or no room there."""
    places, homes = context.recorded(guest), _Homes()
    for group in context.groups(guest):
        nodes = _nodes_of(places, group, pools, context)
        if not nodes or len(group.within(pools[nodes[0]])) < len(group.vcpus):
            return {}
        homes[group] = nodes[0]
    return homes


def _homes(
    context: Context, guest: Guest, pools: Mapping[node_choice.Node, CpuSet], free: Mapping[node_choice.Node, int]
) -> _Homes:
    """The best node for each group. Raises NoFit where a group fits none."""
    places, homes = context.current(guest), _Homes()
    for group in context.groups(guest):
        capacity = {node: len(cpus) for node, pool in pools.items() if (cpus := group.within(pool))}
        here = _nodes_of(places, group, pools, context)
        left = _less(free, homes)
        homes[group] = node_choice.choose(context.snapshot, guest, group, capacity, left, here)
    return homes


def _less(free: Mapping[node_choice.Node, int], homes: _Homes) -> dict[node_choice.Node, int]:
    """The free CPUs less one for each vCPU of these groups."""
    left = dict(free)
    for group, node in homes.items():
        left[node] -= len(group.vcpus)
    return left


def _nodes_of(
    places: Mapping[int, CpuSet], group: VcpuGroup, pools: Mapping[node_choice.Node, CpuSet], context: Context
) -> list[node_choice.Node]:
    """The node whose pool has all the group's CPUs that are online: one node or none."""
    cpus = union(places.get(vcpu, CpuSet()) for vcpu in group.vcpus) & context.allocatable.online
    return [node for node, pool in pools.items() if cpus and cpus <= group.within(pool)]


def _bound_vcpus(context: Context, pool: CpuSet) -> int:
    """How many vCPUs of guests that stay as they are can run only on the pool."""
    vcpus = (vcpu for guest in context.others for vcpu in guest.vcpus)
    return sum(1 for vcpu in vcpus if vcpu.thread and vcpu.thread.affinity <= pool)


def _crowded(free: Mapping[node_choice.Node, int]) -> list[str]:
    return [
        f"node {node} gets {-left} more vCPUs than it has CPUs for vCPUs" for node, left in free.items() if left < 0
    ]
