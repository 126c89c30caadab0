"""Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import ClassVar, NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import CONTENTION, LEAST, TERMS
from pinner.model.plan.plan import LeftOut, Wanted
from pinner.planning.available.numa import MemoryBalance, VcpuGroup, everything, is_bound_to_nodes, outstanding
from pinner.planning.available.roles import Resolved
from pinner.planning.objective_terms import MeasuredPlacement
from pinner.planning.request import siblings
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice
from pinner.planning.strategies.single_moves import SingleMoves, masks, measure, rise
from pinner.planning.strategies.strategy import (
    COMMON,
    Answer,
    divided_to_float,
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
    parameters: ClassVar[tuple[str, ...]] = (*COMMON, "vcpus", "smt")
    pursues: ClassVar[tuple[str, ...]] = ("extra_nodes", "remote_memory", "remote_devices", "paired_vcpus")

    def place(self, context: Context) -> Answer:
        resolved = context.resolve()
        roles = resolved.roles
        pools = {node: roles.vcpu & cpus for node, cpus in context.allocatable.nodes.items()}
        context, left_out = divided_to_float(context, roles, pools, crowd=True)
        wanted = list(place_host_processes(context, roles))
        placing = _Placing.of(context, resolved, pools, wanted)
        chosen = placing.chosen()
        for guest in context.guests:
            if homes := chosen.homes.get(guest.uuid):
                wanted += placing.wanted(guest, homes, placing.crowded(guest, chosen))
        warnings = (*resolved.warnings, *floating_warnings(context, roles), *_crowded(chosen.room.free))
        return Answer(roles, tuple(wanted), (*left_out, *chosen.unplaced), warnings)


_Homes = dict[VcpuGroup, NodeId]
_MOST_HOMES = 64
"""Of one guest."""


@dataclass(frozen=True, slots=True)
class _Room:
    """Below 0 where vCPUs share CPUs."""

    free: Mapping[NodeId, int]
    memory: MemoryBalance

    def less(self, guest: Guest, homes: _Homes) -> "_Room":
        return self._changed(guest, homes, back=False)

    def more(self, guest: Guest, homes: _Homes) -> "_Room":
        return self._changed(guest, homes, back=True)

    def _changed(self, guest: Guest, homes: _Homes, *, back: bool) -> "_Room":
        free, memory = dict(self.free), self.memory
        for group, node in homes.items():
            free[node] += len(group.vcpus) if back else -len(group.vcpus)
            memory = memory.booked(guest, group, node, back=back)
        return _Room(free, memory)

    @property
    def crowd(self) -> int:
        return sum(-left for left in self.free.values() if left < 0)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    homes: Mapping[str, _Homes]
    unplaced: tuple[LeftOut, ...]
    room: _Room

    def with_homes(self, guest: Guest, homes: _Homes) -> "_Choice":
        """Instead of those that it has, if any."""
        room = self.room.more(guest, before) if (before := self.homes.get(guest.uuid)) else self.room
        return replace(self, homes={**self.homes, guest.uuid: homes}, room=room.less(guest, homes))


class _Measured(NamedTuple):
    choice: _Choice
    measured: MeasuredPlacement


@dataclass(frozen=True, slots=True)
class _Placing:
    """Homes for the guests of a context."""

    context: Context
    resolved: Resolved
    pools: Mapping[NodeId, CpuSet]
    near: Mapping[str, Mapping[NodeId, node_choice.Preference]]
    """By UUID."""
    moves: SingleMoves
    host: MeasuredPlacement
    """Without any guest's home."""

    @classmethod
    def of(
        cls, context: Context, resolved: Resolved, pools: Mapping[NodeId, CpuSet], host: Iterable[Wanted]
    ) -> "_Placing":
        near = {guest.uuid: node_choice.preferences(context.snapshot, guest, pools) for guest in context.guests}
        return cls(
            context,
            resolved,
            pools,
            near,
            SingleMoves.of(context, NumaLocal()),
            measure(context).measured(masks(context, host)),
        )

    def chosen(self) -> _Choice:
        """A recorded guest stays. The others stay on their nodes, unless it is better to place all of them anew."""
        begun = self._begun()
        others = sorted(
            (guest for guest in self.context.guests if guest.uuid not in begun.homes), key=self._number_of_nodes
        )
        stay = begun
        for guest in others:
            if homes := self._homes_now(guest, stay.room):
                stay = stay.with_homes(guest, homes)

        anew = self._settled(others, self._placed_anew(others, begun))
        if len(stay.homes) == len(begun.homes):
            return anew.choice
        waiting = [guest for guest in others if guest.uuid not in stay.homes]
        there = self._settled(others, self._in_order(waiting, stay))
        return (anew if self._is_better(anew, there) else there).choice

    def crowded(self, guest: Guest, chosen: _Choice) -> CpuSet:
        """Nodes that are nearer to the guest, but where other guests leave too few CPUs."""
        homes = chosen.homes[guest.uuid]
        if not self._has_room(guest, homes, room := chosen.room.more(guest, homes)):
            return CpuSet()
        return CpuSet.of(
            node
            for other, _ in self._possible(guest, homes, room, nearer=True)
            for node in other.values()
            if node is not None and room.less(guest, other).free[node] < 0
        )

    def wanted(self, guest: Guest, homes: _Homes, crowded: CpuSet = CpuSet()) -> Iterator[Wanted]:
        yield from place_beside(self.context, self.resolved, guest, homes.values())
        but = (
            f"; node{'s' * (len(crowded) > 1)} {crowded}, which would be nearer, has too few free CPUs"
            if crowded
            else ""
        )
        for group, node in homes.items():
            why = (group.why or node_choice.reason(self.context.snapshot, guest, node)) + but
            why += self._sharing(group, self.pools[node])
            yield from float_over(self.context, guest, replace(group, why=why), self.pools[node], "")

    def _sharing(self, group: VcpuGroup, pool: CpuSet) -> str:
        """Where another strategy could give each vCPU a core."""
        cores, vcpus = len(self.context.allocatable.cores_within(group.within(pool))), len(group.vcpus)
        beyond = not group.crowded and cores < vcpus <= self.context.snapshot.topology.core_count
        return f"; {vcpus} vCPUs share {cores} core{'s' * (cores > 1)}" if beyond else ""

    def _begun(self) -> _Choice:
        context, pools = self.context, self.pools
        free = {
            node: len(siblings.usable(context, pool)) - _bound_vcpus(context, pool)
            for node, pool in pools.items()
            if pool
        }
        begun = _Choice({}, (), _Room(free, context.memory_balance()))
        for guest in context.guests:
            if homes := _recorded_homes(context, guest, pools):
                begun = begun.with_homes(guest, homes)
        return begun

    def _number_of_nodes(self, guest: Guest) -> int:
        """On which its vCPUs can have CPUs of their own."""
        return min(len(self._capacity(group)) for group in self.context.groups(guest))

    def _capacity(self, group: VcpuGroup) -> dict[NodeId, int]:
        sizes = {node: group.room(pool) for node, pool in self.pools.items()}
        return {node: size for node, size in sizes.items() if size and size >= len(group.vcpus)}

    def _homes_now(self, guest: Guest, room: _Room) -> _Homes:
        """Empty where the guest is not on nodes that fit."""
        places, homes = self.context.current(guest), _Homes()
        for group in self.context.groups(guest):
            nodes = [
                node for node in _nodes_of(places, group, self.pools, self.context) if node in self._capacity(group)
            ]
            if not nodes or not self._has_memory(guest, group, nodes[0], room.less(guest, homes)):
                return {}
            homes[group] = nodes[0]
        return homes

    def _has_memory(self, guest: Guest, group: VcpuGroup, node: NodeId, room: _Room) -> bool:
        with_memory = node_choice.with_memory
        bound = group.why and is_bound_to_nodes(guest)
        return bool(bound or with_memory(self.context.snapshot, guest, group, [node], room.memory))

    def _placed_anew(self, others: list[Guest], begun: _Choice) -> _Choice:
        """Bound guests first. Where one then fits no node, they are sorted by the memory that they have not got yet, if
        fewer are unplaced so."""
        first = self._in_order(others, begun)
        if first.unplaced:
            by_memory = sorted(others, key=lambda guest: -outstanding(guest, everything(guest)))
            first = min(first, self._in_order(by_memory, begun), key=lambda each: len(each.unplaced))
        return first

    def _in_order(self, guests: Iterable[Guest], begun: _Choice) -> _Choice:
        chosen, unplaced = begun, list(begun.unplaced)
        for guest in guests:
            try:
                chosen = chosen.with_homes(guest, self._homes(guest, chosen.room))
            except NoFit as error:
                unplaced.append(LeftOut(guest.target, error.message))
        return replace(chosen, unplaced=tuple(unplaced))

    def _homes(self, guest: Guest, room: _Room) -> _Homes:
        """Raises NoFit."""
        homes = _Homes()
        for group in self.context.groups(guest):
            capacity = {node: size for node, pool in self.pools.items() if (size := group.room(pool))}
            rest = room.less(guest, homes)
            homes[group] = node_choice.choose(
                self.context.snapshot, guest, group, capacity, rest.free, rest.memory, self.near[guest.uuid]
            )
        return homes

    def _settled(self, guests: list[Guest], begun: _Choice) -> _Measured:
        chosen = self.moves.settled(
            self._measured(begun), [guest for guest in guests if guest.uuid in begun.homes], self._moved
        )
        left_out = {left.target for left in begun.unplaced}
        if not left_out or chosen.choice is begun:
            return chosen
        waiting = [guest for guest in guests if guest.target in left_out]
        after = self._in_order(waiting, replace(chosen.choice, unplaced=()))
        return self._settled(guests, after) if len(after.homes) > len(begun.homes) else chosen

    def _measured(self, choice: _Choice) -> _Measured:
        planned = dict(self.host.planned)
        for guest in self.context.guests:
            if homes := choice.homes.get(guest.uuid):
                planned |= masks(self.context, self.wanted(guest, homes))
        return _Measured(choice, self.host.measure.measured(planned))

    def _moved(self, guest: Guest, chosen: _Measured) -> Iterator[_Measured]:
        """To places that leave it CPUs of its own, if it has them."""
        homes = chosen.choice.homes[guest.uuid]
        room = chosen.choice.room.more(guest, homes)
        needs_room = self._has_room(guest, homes, room)
        for other, is_nearer in self._possible(guest, homes, room, nearer=self._is_quiet(guest, chosen)):
            if not (is_nearer and needs_room) or self._has_room(guest, other, room):
                yield self._with_homes(chosen, guest, other)

    def _with_homes(self, chosen: _Measured, guest: Guest, homes: _Homes) -> _Measured:
        planned = masks(self.context, self.wanted(guest, homes))
        return _Measured(chosen.choice.with_homes(guest, homes), chosen.measured.moved(guest.uuid, planned))

    @staticmethod
    def _is_quiet(guest: Guest, chosen: _Measured) -> bool:
        """No move to an equal distance lowers the objective: nothing is disturbed or overloaded, no device far, and no
        core shared."""
        values = chosen.measured.values
        return not (
            guest.pci or values["paired_vcpus"] or any(values[kind.name] for kind in TERMS if kind.tier == CONTENTION)
        )

    def _possible(self, guest: Guest, homes: _Homes, room: _Room, *, nearer: bool) -> Iterator[tuple[_Homes, bool]]:
        """Nearer ones, and unless only these are asked for, others as near; with whether each is nearer."""
        groups, near, distance = self.context.groups(guest), self.near[guest.uuid], self.moves.distance
        here = distance(near, homes)
        if nearer and here[1] < LEAST and len(set(homes.values())) <= 1:
            return
        for nodes in islice(product(*[self._capacity(group) for group in groups]), _MOST_HOMES):
            other = dict(zip(groups, nodes, strict=True))
            farther = rise(here, distance(near, other))
            if other != homes and (farther < 0 if nearer else farther <= 0) and self._have_memory(guest, other, room):
                yield other, farther < 0

    def _have_memory(self, guest: Guest, homes: _Homes, room: _Room) -> bool:
        for group, node in homes.items():
            if not self._has_memory(guest, group, node, room):
                return False
            room = room.less(guest, {group: node})
        return True

    def _has_room(self, guest: Guest, homes: _Homes, room: _Room) -> bool:
        after = room.less(guest, homes)
        return all(after.free[node] >= 0 for node in homes.values())

    def _is_better(self, one: _Measured, other: _Measured) -> bool:
        first, second = ((len(each.choice.unplaced), each.choice.room.crowd) for each in (one, other))
        same = one.choice.homes == other.choice.homes
        return first < second or (first == second and not same and self.moves.gain(other.measured, one.measured) > 0)


def _recorded_homes(context: Context, guest: Guest, pools: Mapping[NodeId, CpuSet]) -> _Homes:
    if not (places := context.recorded(guest)):
        return {}
    homes = _Homes()
    for group in context.groups(guest):
        nodes = _nodes_of(places, group, pools, context)
        if not nodes or group.room(pools[nodes[0]]) < len(group.vcpus):
            return {}
        homes[group] = nodes[0]
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
