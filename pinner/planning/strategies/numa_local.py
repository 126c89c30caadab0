"""Like shared-pool, but each guest's vCPUs float over the CPUs of one NUMA node."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from math import fsum
from typing import ClassVar

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import TERMS, compared
from pinner.model.plan.plan import LeftOut, Wanted
from pinner.planning.available.numa import MemoryBalance, VcpuGroup, everything, is_bound_to_nodes, outstanding
from pinner.planning.available.roles import Resolved
from pinner.planning.objective_terms import ObjectiveMeasure, weights
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice
from pinner.planning.strategies.strategy import (
    COMMON,
    Answer,
    asked_terms,
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
        placing = _Placing(context, resolved, pools)
        chosen = placing.chosen()
        wanted = list(place_host_processes(context, roles))
        for guest in context.guests:
            if homes := chosen.homes.get(guest.uuid):
                wanted += placing.wanted(guest, homes, placing.crowded(guest, chosen))
        warnings = (*resolved.warnings, *floating_warnings(context, roles), *_crowded(chosen.room.free))
        return Answer(roles, tuple(wanted), (*left_out, *chosen.unplaced), warnings)


_Homes = dict[VcpuGroup, NodeId]
_CROWDING = next(kind.tier for kind in TERMS if kind.name == "overcommit")
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


@dataclass(frozen=True)
class _Placing:
    """Homes for the guests of a context."""

    context: Context
    resolved: Resolved
    pools: Mapping[NodeId, CpuSet]

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
        anew = self._placed_anew(others, begun)
        if len(stay.homes) == len(begun.homes):
            return anew
        stay = self._settled(others, self._in_order([each for each in others if each.uuid not in stay.homes], stay))
        return anew if self._is_better(anew, stay) else stay

    def crowded(self, guest: Guest, chosen: _Choice) -> CpuSet:
        """Nodes that are nearer to the guest, but where other guests leave too few CPUs."""
        homes = chosen.homes[guest.uuid]
        if not self._has_room(guest, homes, room := chosen.room.more(guest, homes)):
            return CpuSet()
        here = self._distance(guest, homes)
        nearer = [other for other in self._possible(guest, room) if self._distance(guest, other) < here]
        return CpuSet.of(
            node
            for other in nearer
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
            why = group.why or node_choice.reason(self.context.snapshot, guest, node)
            yield from float_over(self.context, guest, replace(group, why=why + but), self.pools[node], "")

    def _begun(self) -> _Choice:
        context, pools = self.context, self.pools
        free = {node: len(pool) - _bound_vcpus(context, pool) for node, pool in pools.items() if pool}
        begun = _Choice({}, (), _Room(free, context.memory_balance()))
        for guest in context.guests:
            if homes := _recorded_homes(context, guest, pools):
                begun = begun.with_homes(guest, homes)
        return begun

    def _number_of_nodes(self, guest: Guest) -> int:
        """On which its vCPUs can have CPUs of their own."""
        return min(len(self._capacity(group)) for group in self.context.groups(guest))

    def _capacity(self, group: VcpuGroup) -> dict[NodeId, int]:
        sizes = {node: len(group.within(pool)) for node, pool in self.pools.items()}
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
        return self._settled(others, first)

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
            capacity = {node: len(cpus) for node, pool in self.pools.items() if (cpus := group.within(pool))}
            rest = room.less(guest, homes)
            homes[group] = node_choice.choose(
                self.context.snapshot, guest, group, capacity, rest.free, memory=rest.memory
            )
        return homes

    def _settled(self, guests: list[Guest], begun: _Choice) -> _Choice:
        """After each move of one guest that lowers the objective and leaves it CPUs of its own, if it has them."""
        chosen, before = begun, None
        while chosen is not before:
            before = chosen
            for guest in guests:
                if guest.uuid in chosen.homes:
                    chosen = self._moved(guest, chosen)
            left_out = {left.target for left in chosen.unplaced}
            waiting = [guest for guest in guests if guest.target in left_out] if chosen is not before else []
            if waiting:
                chosen = self._in_order(waiting, replace(chosen, unplaced=()))
        return chosen

    def _moved(self, guest: Guest, chosen: _Choice) -> _Choice:
        homes, best = chosen.homes[guest.uuid], chosen
        room, here = chosen.room.more(guest, homes), self._distance(guest, homes)
        needs_room = self._has_room(guest, homes, room)
        for other in self._possible(guest, room):
            distance = self._distance(guest, other)
            if other == homes or distance > here or (distance == here and self._is_quiet(guest, chosen)):
                continue
            if distance < here and needs_room and not self._has_room(guest, other, room):
                continue
            moved = chosen.with_homes(guest, other)
            if self._gain(best, moved) > 0:
                best = moved
        return best

    def _is_quiet(self, guest: Guest, chosen: _Choice) -> bool:
        """No move to an equal distance lowers the objective: nothing is disturbed or overloaded, and no device far."""
        values = self._values(chosen)
        return not (guest.pci or any(values[kind.name] for kind in TERMS if kind.tier == _CROWDING))

    def _possible(self, guest: Guest, room: _Room) -> Iterator[_Homes]:
        groups = self.context.groups(guest)
        for nodes in islice(product(*[self._capacity(group) for group in groups]), _MOST_HOMES):
            homes, rest = _Homes(), room
            for group, node in zip(groups, nodes, strict=True):
                if not self._has_memory(guest, group, node, rest):
                    break
                homes[group] = node
                rest = rest.less(guest, {group: node})
            else:
                yield homes

    def _has_room(self, guest: Guest, homes: _Homes, room: _Room) -> bool:
        after = room.less(guest, homes)
        return all(after.free[node] >= 0 for node in homes.values())

    def _distance(self, guest: Guest, homes: _Homes) -> tuple[int, float]:
        """The terms of the objective that follow from one guest's nodes and count before those of many."""
        near = self._preferences(guest)
        vcpus = sum(len(group.vcpus) for group in homes)
        remote = fsum(len(group.vcpus) / max(vcpus, 1) * near[node].remote_memory for group, node in homes.items())
        return len(set(homes.values())), round(remote, 2)

    def _preferences(self, guest: Guest) -> Mapping[NodeId, node_choice.Preference]:
        if (known := self._known.get(guest.uuid)) is None:
            known = self._known[guest.uuid] = node_choice.preferences(self.context.snapshot, guest, self.pools)
        return known

    @cached_property
    def _known(self) -> dict[str, Mapping[NodeId, node_choice.Preference]]:
        return {}

    @cached_property
    def _measure(self) -> ObjectiveMeasure:
        """Without guests that another part of the plan places: the next plan must have the same objective."""
        context = self.context
        placed = {guest.uuid for guest in (*context.guests, *context.others)}
        placed -= {guest.uuid for guest in context.nova_pinned}
        guests = tuple(guest for guest in context.snapshot.guests if guest.uuid in placed)
        return ObjectiveMeasure.of(replace(context.snapshot, guests=guests), context.request.busy_threshold)

    def _is_better(self, one: _Choice, other: _Choice) -> bool:
        first, second = ((len(each.unplaced), each.room.crowd) for each in (one, other))
        return first < second or (first == second and one.homes != other.homes and self._gain(other, one) > 0)

    def _gain(self, before: _Choice, after: _Choice) -> float:
        factors = weights(self.context.snapshot, self.context.request)
        return compared(self._values(before), self._values(after), factors, asked_terms(NumaLocal())).gain

    def _values(self, chosen: _Choice) -> Mapping[str, float]:
        if (known := self._known_values.get(chosen)) is None:
            masks = dict(self._of_host)
            for guest in self.context.guests:
                if homes := chosen.homes.get(guest.uuid):
                    masks |= self._masks(guest, homes)
            known = self._known_values[chosen] = self._measure.values(masks)
        return known

    @cached_property
    def _known_values(self) -> dict[_Choice, Mapping[str, float]]:
        return {}

    @cached_property
    def _of_host(self) -> Mapping[int, CpuSet]:
        return self._by_thread(place_host_processes(self.context, self.resolved.roles))

    def _masks(self, guest: Guest, homes: _Homes) -> Mapping[int, CpuSet]:
        key = guest.uuid, tuple(homes.values())
        if (known := self._known_masks.get(key)) is None:
            known = self._known_masks[key] = self._by_thread(self.wanted(guest, homes))
        return known

    @cached_property
    def _known_masks(self) -> dict[tuple[str, tuple[NodeId, ...]], Mapping[int, CpuSet]]:
        return {}

    def _by_thread(self, wanted: Iterable[Wanted]) -> Mapping[int, CpuSet]:
        threads = self.context.threads
        return {thread.tid: want.cpus for want in wanted for thread in threads.get(want.target, ())}


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
