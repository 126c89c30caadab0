"""Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.plan import LeftOut
from pinner.planning.available.numa import MemoryBalance, VcpuGroup, everything, outstanding
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice
from pinner.planning.strategies.strategy import (
    COMMON,
    Answer,
    divided,
    float_over,
    floating_warnings,
    place_beside,
    place_host_processes,
)


class NumaLocal:
    name: ClassVar[str] = "numa-local"
    summary: ClassVar[str] = (
        "Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node, next to its memory and devices."
    )
    parameters: ClassVar[tuple[str, ...]] = COMMON
    pursues: ClassVar[tuple[str, ...]] = ("extra_nodes", "remote_memory", "remote_devices")

    def place(self, context: Context) -> Answer:
        resolved = context.resolve()
        roles = resolved.roles
        context, left_out = divided(context, roles)
        pools = {node: roles.vcpu & cpus for node, cpus in context.allocatable.nodes.items()}
        context = core_classes.kept_apart(
            context, roles.vcpu, lambda cpus: {node: len(pool & cpus) for node, pool in pools.items()}, crowd=True
        )
        chosen = _choose(context, pools)
        wanted = list(place_host_processes(context, roles))
        for guest in context.guests:
            if homes := chosen.homes.get(guest.uuid):
                wanted += place_beside(context, resolved, guest, homes.values())
                for group, node in homes.items():
                    why = node_choice.reason(context.snapshot, guest, node)
                    wanted += float_over(context, guest, group, pools[node], why)
        warnings = (*resolved.warnings, *floating_warnings(context, roles), *_crowded(chosen.room.free))
        return Answer(roles, tuple(wanted), (*left_out, *chosen.unplaced), warnings)


_Homes = dict[VcpuGroup, NodeId]


@dataclass(frozen=True, slots=True)
class _Room:
    """Below 0 where vCPUs share CPUs."""

    free: Mapping[NodeId, int]
    memory: MemoryBalance

    def less(self, guest: Guest, homes: _Homes) -> "_Room":
        free, memory = dict(self.free), self.memory
        for group, node in homes.items():
            free[node] -= len(group.vcpus)
            memory = memory.booked(guest, group, node)
        return _Room(free, memory)


@dataclass(frozen=True, slots=True)
class _Choice:
    homes: Mapping[str, _Homes]
    unplaced: tuple[LeftOut, ...]
    room: _Room


def _choose(context: Context, pools: Mapping[NodeId, CpuSet]) -> _Choice:
    """A recorded guest stays. Where another one fits no node, they are sorted by the memory that they have not got yet,
    if fewer are unplaced so."""
    room = _Room(
        {node: len(pool) - _bound_vcpus(context, pool) for node, pool in pools.items() if pool},
        context.memory_balance(),
    )
    recorded: dict[str, _Homes] = {}
    for guest in context.guests:
        if homes := _recorded_homes(context, guest, pools):
            recorded[guest.uuid] = homes
            room = room.less(guest, homes)
    others = [guest for guest in context.guests if guest.uuid not in recorded]
    first = _in_order(context, pools, others, _Choice(recorded, (), room))
    if not first.unplaced:
        return first
    by_memory = sorted(others, key=lambda guest: -outstanding(guest, everything(guest)))
    return min(
        first, _in_order(context, pools, by_memory, _Choice(recorded, (), room)), key=lambda each: len(each.unplaced)
    )


def _in_order(context: Context, pools: Mapping[NodeId, CpuSet], guests: Iterable[Guest], begun: _Choice) -> _Choice:
    chosen, unplaced, room = dict(begun.homes), list(begun.unplaced), begun.room
    for guest in guests:
        try:
            chosen[guest.uuid] = _homes(context, guest, pools, room)
        except NoFit as error:
            unplaced.append(LeftOut(guest.target, error.message))
            continue
        room = room.less(guest, chosen[guest.uuid])
    return _Choice(chosen, tuple(unplaced), room)


def _recorded_homes(context: Context, guest: Guest, pools: Mapping[NodeId, CpuSet]) -> _Homes:
    if not (places := context.recorded(guest)):
        return {}
    homes = _Homes()
    for group in context.groups(guest):
        nodes = _nodes_of(places, group, pools, context)
        if not nodes or len(group.within(pools[nodes[0]])) < len(group.vcpus):
            return {}
        homes[group] = nodes[0]
    return homes


def _homes(context: Context, guest: Guest, pools: Mapping[NodeId, CpuSet], room: _Room) -> _Homes:
    """Raises NoFit."""
    places, homes = context.current(guest), _Homes()
    for group in context.groups(guest):
        capacity = {node: len(cpus) for node, pool in pools.items() if (cpus := group.within(pool))}
        here, rest = _nodes_of(places, group, pools, context), room.less(guest, homes)
        homes[group] = node_choice.choose(context.snapshot, guest, group, capacity, rest.free, here, rest.memory)
    return homes


def _nodes_of(
    places: Mapping[int, CpuSet], group: VcpuGroup, pools: Mapping[NodeId, CpuSet], context: Context
) -> list[NodeId]:
    cpus = union(places.get(vcpu, CpuSet()) for vcpu in group.vcpus) & context.allocatable.online
    return [node for node, pool in pools.items() if cpus <= group.within(pool)] if cpus else []


def _bound_vcpus(context: Context, pool: CpuSet) -> int:
    """vCPUs of guests that stay, which can run only on the pool."""
    vcpus = (vcpu for guest in context.others for vcpu in guest.vcpus)
    return sum(1 for vcpu in vcpus if vcpu.thread and vcpu.thread.affinity <= pool)


def _crowded(free: Mapping[NodeId, int]) -> list[str]:
    return [
        f"node {node} gets {-left} more vCPUs than it has CPUs for vCPUs" for node, left in free.items() if left < 0
    ]
