"""A pool's free CPUs as slots for one vCPU each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial, reduce
from itertools import accumulate, combinations, islice, permutations, product
from math import fsum
from operator import or_
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.planning.available.exclusions import pinned_cpus
from pinner.planning.available.numa import MemoryBalance, VcpuGroup, is_bound_to_nodes
from pinner.planning.request.context import Context
from pinner.planning.request.siblings import cores_for_pins
from pinner.planning.strategies.allocator import guest_packing, node_choice
from pinner.planning.strategies.single_moves import Homes, Near


class GuestAllocation(NamedTuple):
    nodes: tuple[NodeId, ...]
    cpus: dict[int, int]


_MOST_HOMES = 64
"""Of one guest."""
_MOST_ORDERS = 6
"""Of some nodes: the first ones are filled. All of three nodes."""


class _Slot(NamedTuple):
    """With the CPUs that it uses up, as bits: with smt ``isolate`` its whole core."""

    cpu: int
    uses: int


_OnNode = tuple[NodeId, list[_Slot]]


def needs(guest: Guest) -> int:
    return len(guest.plugged)


def is_pinned(guest: Guest, masks: Mapping[int, CpuSet]) -> bool:
    """To one CPU each, which other vCPUs may have, too."""
    return len(masks) == needs(guest) and all(len(mask) == 1 for mask in masks.values())


class FreeCpus:
    """By node. Sets of CPUs are bits of integers."""

    def __init__(self, context: Context, pool: CpuSet) -> None:
        self.context = context
        self._isolate = context.request.smt == "isolate"
        nodes, l3 = context.allocatable.nodes.items(), context.snapshot.topology.l3_by_cpu
        self._cores = {
            node: tuple([(core.bits, l3[core.lowest]) for core in cores_for_pins(context, pool & cpus)])
            for node, cpus in nodes
        }
        self._allowed = {node: _union([core for core, _ in cores]) for node, cores in self._cores.items()}
        free = (pool - _occupied(context)).bits
        self._free = {node: free & cpus.bits for node, cpus in nodes}
        self._slots: dict[NodeId, list[_Slot]] = {}
        self._memory = context.memory_balance()
        self._known = guest_packing.Known()
        self._all = self.free
        self._widest, self._total = max(self._all.values(), default=0), sum(self._all.values())

    def without(self, guests: Iterable[Guest], places: Mapping[str, GuestAllocation]) -> "FreeCpus":
        other = copy(self)
        other._free, other._slots = dict(self._free), dict(self._slots)
        for guest in guests:
            other._leave(guest, places[guest.uuid])
        return other

    @property
    def cores(self) -> guest_packing.FreeCores:
        return guest_packing.FreeCores(self._cores, dict(self._free), self._memory, self._known)

    @property
    def memory(self) -> MemoryBalance:
        return self._memory

    @property
    def whole(self) -> Mapping[NodeId, int]:
        """Slots before any guest of the request took one."""
        return self._all

    @property
    def free(self) -> Mapping[NodeId, int]:
        return {node: self._count(node) for node in self._cores}

    def take_pinned(self, guest: Guest, masks: Mapping[int, CpuSet]) -> GuestAllocation:
        """Raises NoFit where the masks are no free slots. A guest wider than a node keeps its nodes, even where it
        would fit fewer: other guests may have taken these before."""
        return self._take(guest, lambda group: self._pinned(group, masks), self._parts(guest, masks))

    def take_best(self, guest: Guest) -> GuestAllocation:
        """Raises NoFit with the numbers."""
        if not self.is_wide(guest):
            return self._take(guest, lambda group: self._best(guest, group))
        near = node_choice.preferences(self.context.snapshot, guest, self._cores)
        parts = min(parts_of(guest, self.free, near), key=partial(self._farness, guest, near))
        return self._take(guest, lambda group: (parts[group], self._slots_of(parts[group])[: len(group.vcpus)]), parts)

    def options(
        self, guest: Guest, near: Near, begun: CpuSet, is_wanted: Callable[[Homes], bool]
    ) -> Iterator[tuple["FreeCpus", GuestAllocation]]:
        """Its possible places, each with what it leaves free: on combinations of nodes, the CPUs of each L3 domain
        first, after all those outside cores of which one other guest uses a part (``begun``, by their lowest CPU)."""
        for homes in filter(is_wanted, islice(self._possible_homes(guest, near), _MOST_HOMES)):
            places: list[GuestAllocation] = []
            for domain in self._domains(homes):
                left = self.without((), {})
                with suppress(NoFit):
                    place = left._take_on(guest, homes, partial(self._order, domain, begun))
                    if place not in places:
                        places.append(place)
                        yield left, place

    def _domains(self, homes: Homes) -> list[int | None]:
        """One of those without a free CPU: the first CPUs of any come first then."""
        cores = [
            (domain, bool(core & self._free[node])) for node in homes.values() for core, domain in self._cores[node]
        ]
        free = {domain for domain, is_free in cores if is_free}
        full = sorted({domain for domain, _ in cores} - free, key=str)
        return sorted(free.union(full[:1]), key=str)

    def homes(self, guest: Guest, place: GuestAllocation) -> Homes:
        return dict(zip(self._groups(guest, place), place.nodes, strict=True))

    def is_wide(self, guest: Guest) -> bool:
        """Wider than every node and unbound, but not wider than all nodes."""
        groups = self.context.groups(guest)
        return len(groups) == 1 and groups[0].cpus is None and self._widest < len(groups[0].vcpus) <= self._total

    def is_packed(self, guest: Guest) -> bool:
        """The guest may have any CPUs of one node."""
        groups = self.context.groups(guest)
        if len(groups) != 1 or groups[0].cpus is not None:
            return False
        vcpus = len(groups[0].vcpus)
        return vcpus > 0 and not self._widest < vcpus <= self._total

    def pack(self, guests: Sequence[Guest]) -> guest_packing.Packed:
        return guest_packing.packed(self.context, self.cores, guests)

    def places(self, guests: Sequence[Guest], packed: guest_packing.Packed) -> dict[str, GuestAllocation]:
        """Without taking their CPUs."""
        places: dict[str, GuestAllocation] = {}
        for guest in guests:
            if cpus := packed.cpus.get(guest.uuid):
                (group,) = self.context.groups(guest)
                places[guest.uuid] = GuestAllocation(
                    (packed.nodes[guest.uuid],), dict(zip(group.vcpus, cpus, strict=True))
                )
        return places

    def take_packed(self, guests: Sequence[Guest], places: Mapping[str, GuestAllocation]) -> None:
        for guest in guests:
            if place := places.get(guest.uuid):
                (group,), (node,) = self.context.groups(guest), place.nodes
                self._free[node] &= ~_union(map(self._uses, place.cpus.values()))
                self._slots.pop(node, None)
                self._memory = self._memory.booked(guest, group, node)

    def pack_and_take(self, guests: Sequence[Guest]) -> dict[str, GuestAllocation]:
        places = self.places(guests, self.pack(guests))
        self.take_packed(guests, places)
        return places

    def take_all(self, guests: Sequence[Guest]) -> dict[str, GuestAllocation]:
        places = {guest.uuid: self.take_best(guest) for guest in guests if not self.is_packed(guest)}
        unplaced = [guest for guest in guests if guest.uuid not in places]
        places |= self.pack_and_take(unplaced) if unplaced else {}
        for guest in guests:
            if guest.uuid not in places:
                raise NoFit(needs(guest), max(self.free.values(), default=0), "no node has room for it")
        return places

    def _pinned(self, group: VcpuGroup, masks: Mapping[int, CpuSet]) -> _OnNode:
        """Two vCPUs on one CPU, or on one core with smt ``isolate``, would use the same CPUs twice. A vCPU may be on
        any CPU of its core."""
        bits = [masks[vcpu].bits if vcpu in masks else 0 for vcpu in group.vcpus]
        cpus, bound = _union(bits), -1 if group.cpus is None else group.cpus.bits
        # A guest that is not pinned one to one is the usual case: no slot is searched for it.
        for node, free in self._free.items() if all(mask.bit_count() == 1 for mask in bits) else ():
            if cpus & free & self._allowed[node] & bound == cpus:
                ids = [mask.bit_length() - 1 for mask in bits]
                uses = list(map(self._uses, ids)) if self._isolate else bits
                used = _union(uses)
                if used & free == used and sum(map(int.bit_count, uses)) == used.bit_count():
                    return node, list(map(_Slot, ids, uses))
        raise NoFit(len(bits), 0, "its vCPUs are not pinned to free CPUs of one node, one for each")

    def _best(self, guest: Guest, group: VcpuGroup) -> _OnNode:
        slots = {node: _within(group, self._slots_of(node)) for node in self._cores}
        free = {node: len(there) for node, there in slots.items()}
        node = node_choice.choose(self.context.snapshot, guest, group, free, free, memory=self._memory)
        return node, slots[node][: len(group.vcpus)]

    def _possible_homes(self, guest: Guest, near: Near) -> Iterator[Homes]:
        if self.is_wide(guest):
            yield from parts_of(guest, self.free, near)
            return
        groups = self.context.groups(guest)
        for nodes in product(self._cores, repeat=len(groups)):
            yield dict(zip(groups, nodes, strict=True))

    def _farness(self, guest: Guest, near: Near, homes: Homes) -> tuple[int, float, int]:
        """Parts without room for their memory, then remote memory and devices, by vCPUs."""
        snapshot, vcpus = self.context.snapshot, [(near[node], len(group.vcpus)) for group, node in homes.items()]
        fits = (node_choice.with_memory(snapshot, guest, group, [node], self._memory) for group, node in homes.items())
        return (
            sum(not nodes for nodes in fits),
            fsum(each.remote_memory * count for each, count in vcpus),
            sum(each.remote_devices * count for each, count in vcpus),
        )

    def _take_on(self, guest: Guest, homes: Homes, order: Callable[[_Slot], tuple[bool, bool]]) -> GuestAllocation:
        return self._take(guest, lambda group: self._on(homes[group], guest, group, order), homes)

    def _on(self, node: NodeId, guest: Guest, group: VcpuGroup, order: Callable[[_Slot], tuple[bool, bool]]) -> _OnNode:
        slots, bound = _within(group, self._slots_of(node)), group.why and is_bound_to_nodes(guest)
        fits = bound or node_choice.with_memory(self.context.snapshot, guest, group, [node], self._memory)
        if not fits or len(slots) < len(group.vcpus):
            raise NoFit(len(group.vcpus), len(slots), "the node has no room for it")
        return node, sorted(slots, key=order)[: len(group.vcpus)]

    def _order(self, domain: int | None, begun: CpuSet, slot: _Slot) -> tuple[bool, bool]:
        topology = self.context.snapshot.topology
        return topology.online_cores[slot.cpu].lowest in begun, topology.l3_by_cpu[slot.cpu] != domain

    def _take(
        self, guest: Guest, find: Callable[[VcpuGroup], _OnNode], groups: Iterable[VcpuGroup] = ()
    ) -> GuestAllocation:
        """Slots for every group (none: the guest's own groups), or for none: it raises NoFit then."""
        before = dict(self._free), dict(self._slots), self._memory
        nodes: list[NodeId] = []
        cpus: dict[int, int] = {}
        try:
            for group in groups or self.context.groups(guest):
                node, slots = find(group)
                self._free[node] &= ~_union([slot.uses for slot in slots])
                self._slots.pop(node, None)
                self._memory = self._memory.booked(guest, group, node)
                nodes.append(node)
                cpus.update({vcpu: slot.cpu for vcpu, slot in zip(group.vcpus, slots, strict=True)})
        except NoFit:
            self._free, self._slots, self._memory = before
            raise
        return GuestAllocation(tuple(nodes), cpus)

    def _leave(self, guest: Guest, place: GuestAllocation) -> None:
        for group, node in zip(self._groups(guest, place), place.nodes, strict=True):
            self._free[node] |= _union([self._uses(place.cpus[vcpu]) for vcpu in group.vcpus])
            self._slots.pop(node, None)
            self._memory = self._memory.booked(guest, group, node, back=True)

    def _groups(self, guest: Guest, place: GuestAllocation) -> Sequence[VcpuGroup]:
        if not self.is_wide(guest):
            return self.context.groups(guest)
        return self._parts(guest, {vcpu: CpuSet.one(cpu) for vcpu, cpu in place.cpus.items()})

    def _parts(self, guest: Guest, masks: Mapping[int, CpuSet]) -> Sequence[VcpuGroup]:
        return parts_pinned(guest, masks, self.context.allocatable.nodes) if self.is_wide(guest) else ()

    def _uses(self, cpu: int) -> int:
        """With smt ``isolate`` a pool has whole cores only."""
        return self.context.allocatable.cores[cpu].bits if self._isolate else 1 << cpu

    def _count(self, node: NodeId) -> int:
        free = self._free[node]
        if self._isolate:
            return sum([core & free == core for core, _ in self._cores[node]])
        return (self._allowed[node] & free).bit_count()

    def _slots_of(self, node: NodeId) -> list[_Slot]:
        """Unused cores first, so that guests share few cores."""
        if node not in self._slots:
            self._slots[node] = self._found_slots(node)
        return self._slots[node]

    def _found_slots(self, node: NodeId) -> list[_Slot]:
        free = self._free[node]
        unused, begun = [], []
        for core, _ in self._cores[node]:
            if core & free == core:
                unused += [_Slot(_lowest(core), core)] if self._isolate else _each(core)
            elif not self._isolate:
                begun += _each(core & free)
        return unused + begun


def _within(group: VcpuGroup, slots: list[_Slot]) -> list[_Slot]:
    if group.cpus is None:
        return slots
    return [_Slot(_lowest(cpus), slot.uses) for slot in slots if (cpus := slot.uses & group.cpus.bits)]


def _each(cpus: int) -> list[_Slot]:
    return [_Slot(cpu, 1 << cpu) for cpu in CpuSet(cpus)]


def _lowest(cpus: int) -> int:
    return (cpus & -cpus).bit_length() - 1


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _occupied(context: Context) -> CpuSet:
    return context.taken | union(pinned_cpus(guest) for guest in context.others)


def free_slots(context: Context, pool: CpuSet, taken: CpuSet) -> dict[NodeId, int]:
    free, whole_cores = pool - taken - _occupied(context), context.request.smt == "isolate"
    return {
        node: sum(core <= free if whole_cores else len(core & free) for core in cores_for_pins(context, pool & cpus))
        for node, cpus in context.allocatable.nodes.items()
    }


def fewest(size: int, free: Mapping[NodeId, int]) -> int:
    """Fewest nodes with so many CPUs together; all and one more where all have too few."""
    sums = list(accumulate(sorted(free.values(), reverse=True)))
    return next((count for count, most in enumerate(sums, start=1) if most >= size), len(sums) + 1)


def parts_of(guest: Guest, free: Mapping[NodeId, int], near: Near) -> list[Homes]:
    """The vCPUs in parts, each with its node: on combinations of the fewest nodes with whole cells, else of the fewest,
    the nearest first. Raises NoFit where all nodes together have too few CPUs."""
    size = len(guest.plugged)
    if (least := fewest(size, free)) > len(free):
        total = sum(free.values())
        raise NoFit(size, total, f"all NUMA nodes together have {total} of the CPUs that vCPUs may use")
    cells = _cells(guest)
    for count in range(least, min(len(cells), len(free)) + 1):
        if parts := list(filter(None, (_by_cells(cells, each) for each in _combinations(count, free, near)))):
            return parts
    return [_in_turn(guest, each) for each in _combinations(least, free, near) if sum(each.values()) >= size]


def _combinations(count: int, free: Mapping[NodeId, int], near: Near) -> Iterator[dict[NodeId, int]]:
    """Of so many nodes with their free CPUs, each in several orders; last the one with most."""
    nodes = sorted(free, key=lambda node: (near[node], -free[node], node is None, node or 0))
    most = sorted(nodes, key=lambda node: -free[node])[:count]
    for chosen in (*islice(combinations(nodes, count), _MOST_HOMES), most):
        for ordered in islice(permutations(chosen), _MOST_ORDERS):
            yield {node: free[node] for node in ordered}


def _in_turn(guest: Guest, free: Mapping[NodeId, int]) -> Homes:
    parts, begin = dict[VcpuGroup, NodeId](), 0
    for node, count in free.items():
        if here := guest.plugged[begin : begin + count]:
            parts[VcpuGroup(tuple(here))] = node
        begin += len(here)
    return parts


def parts_pinned(guest: Guest, masks: Mapping[int, CpuSet], nodes: Mapping[NodeId, CpuSet]) -> list[VcpuGroup]:
    """The vCPUs in parts by the node of their CPUs. Raises NoFit where a vCPU is not on one node."""
    on_nodes: dict[NodeId, list[int]] = {}
    for vcpu in guest.plugged:
        mask = masks.get(vcpu, CpuSet())
        homes = [node for node, cpus in nodes.items() if mask and mask <= cpus]
        if not homes:
            raise NoFit(len(guest.plugged), 0, f"vCPU {vcpu} is not pinned to CPUs of one node")
        on_nodes.setdefault(homes[0], []).append(vcpu)
    return [VcpuGroup(tuple(vcpus)) for vcpus in on_nodes.values()]


def _cells(guest: Guest) -> list[list[int]]:
    """The plugged vCPUs of each, the widest first; none where some vCPUs are in no cell."""
    here = set(guest.plugged)
    cells = [sorted(here.intersection(cell.vcpus)) for cell in guest.numa.cells]
    complete = sum(map(len, cells)) == len(here)
    return sorted(filter(None, cells), key=lambda cell: (-len(cell), cell)) if complete else []


def _by_cells(cells: Sequence[Sequence[int]], free: dict[NodeId, int]) -> Homes:
    """Empty where they do not fit."""
    chosen: dict[NodeId, list[int]] = {}
    for cell in cells:
        node = next((node for node, count in free.items() if count >= len(cell)), -1)
        if node == -1:
            return {}
        chosen.setdefault(node, []).extend(cell)
        free[node] -= len(cell)
    return {VcpuGroup(tuple(sorted(vcpus))): node for node, vcpus in chosen.items()}
