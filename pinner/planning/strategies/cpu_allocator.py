"""Allocates a CPU of its own to every vCPU, all of a guest on one NUMA node, or each on the node that binds it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest import Guest
from pinner.model.plan import LeftOut
from pinner.planning import core_classes
from pinner.planning.context import Context, guest_target, plugged
from pinner.planning.exclusions import own_cpus
from pinner.planning.numa_bounds import VcpuGroup
from pinner.planning.strategies import node_choice

_TRIALS = 100
"""How many combinations of guests are tried to make room for one guest. Each trial allocates all guests again."""

_MOST_MOVERS = 2
"""How many guests move at most to make room for one guest, where the request allows as many."""


@dataclass(frozen=True, slots=True)
class GuestAllocation:
    """The node of each group of a guest's vCPUs, and the CPU of each vCPU by number."""

    nodes: tuple[node_choice.Node, ...]
    cpus: dict[int, int]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of each guest by UUID, and the guests that fit no node."""

    places: dict[str, GuestAllocation]
    unplaced: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A CPU for one vCPU, and the CPUs that it uses up: with smt ``isolate`` its whole core."""

    cpu: int
    uses: CpuSet


_OnNode = tuple[node_choice.Node, list[_Slot]]
"""Slots of one node."""


def allocate(context: Context, pool: CpuSet) -> Allocation:
    """Allocate CPUs of ``pool`` to the context's guests.

    1. A guest keeps its recorded CPUs, or else its current ones, where they are free slots of one node, one for each
       vCPU. So a second plan changes nothing. vCPUs that are bound to CPUs have a node for each bound.
    2. The other guests follow, sorted by number of vCPUs, descending, then by UUID. Each takes the first slots of the
       best node (node_choice.choose) that has as many as it needs.
    3. Where no node has enough slots, one or two other guests move to make room: see ``_displace``.
    4. A guest that still has too few slots is unplaced, with the numbers.

    The slots of a node are sorted by core, unused cores first, so that guests share few cores; then by CPU.
    """
    context = core_classes.kept_apart(context, pool, lambda cpus: free_slots(context, cpus, CpuSet()), crowd=False)
    free_cpus = _FreeCpus(context, pool)
    places: dict[str, GuestAllocation] = {}
    for masks_of in (context.recorded, context.current):
        for guest in context.guests:
            if guest.uuid not in places:
                with suppress(NoFit):
                    places[guest.uuid] = free_cpus.take_pinned(guest, masks_of(guest))
    unplaced = []
    for guest in context.guests:
        if guest.uuid in places:
            continue
        try:
            places[guest.uuid] = free_cpus.take_best(guest)
        except NoFit as error:
            try:
                free_cpus, places = _displace(context, pool, free_cpus, guest, places)
            except NoFit:
                unplaced.append(LeftOut(guest_target(guest), error.message))
    return Allocation(places, tuple(unplaced))


def _needs(guest: Guest) -> int:
    """How many slots the guest needs: one for each plugged-in vCPU."""
    return len(plugged(guest))


class _FreeCpus:
    """The free CPUs of a pool by node, as slots for one vCPU each."""

    def __init__(self, context: Context, pool: CpuSet) -> None:
        self._context = context
        self._isolate = context.request.smt == "isolate"
        self._cores = {node: _cores(context, pool & cpus) for node, cpus in context.allocatable.nodes.items()}
        free = pool - _occupied(context)
        self._free = {node: free & cpus for node, cpus in context.allocatable.nodes.items()}
        self._slots = {node: self._slots_of(node) for node in self._cores}
        self._memory = context.memory_balance()

    @property
    def free(self) -> Mapping[node_choice.Node, int]:
        """How many slots are free on each node."""
        return {node: len(slots) for node, slots in self._slots.items()}

    def take_pinned(self, guest: Guest, masks: Mapping[int, CpuSet]) -> GuestAllocation:
        """Take the CPUs to which ``masks`` pin the guest's vCPUs. Raises NoFit where these are not free slots, one for
        each vCPU: of one node, or of the nodes that bind the guest."""
        return self._take(guest, lambda group: self._pinned(group, masks))

    def take_best(self, guest: Guest) -> GuestAllocation:
        """Take the first slots of the nodes that suit the guest best. Raises NoFit with the numbers."""
        return self._take(guest, lambda group: self._best(guest, group))

    def _pinned(self, group: VcpuGroup, masks: Mapping[int, CpuSet]) -> _OnNode:
        found = [masks.get(vcpu, CpuSet()) for vcpu in group.vcpus]
        cpus = [cpu for mask in found if len(mask) == 1 for cpu in mask]
        # A guest that is not pinned one to one is the usual case: no slot is searched for it.
        homes = [node for node, free in self._free.items() if len(cpus) == len(found) and CpuSet.of(cpus) <= free]
        for node in homes:
            slots = self._slots_with(node, cpus)
            if _is_satisfied(group, slots):
                return node, slots
        raise NoFit(len(found), 0, "its vCPUs are not pinned to free CPUs of one node, one for each")

    def _best(self, guest: Guest, group: VcpuGroup) -> _OnNode:
        slots = {node: _within(group, found) for node, found in self._slots.items()}
        free = {node: len(found) for node, found in slots.items()}
        node = node_choice.choose(self._context.snapshot, guest, group, free, free, memory=self._memory)
        return node, slots[node][: len(group.vcpus)]

    def _take(self, guest: Guest, find: Callable[[VcpuGroup], _OnNode]) -> GuestAllocation:
        """Take slots for every group of the guest, or for none: then NoFit is raised."""
        before = dict(self._free), dict(self._slots), self._memory
        nodes, cpus = [], {}
        try:
            for group in self._context.groups(guest):
                node, slots = find(group)
                self._free[node] -= union(slot.uses for slot in slots)
                self._slots[node] = self._slots_of(node)
                self._memory = self._memory.booked(guest, group, node)
                nodes.append(node)
                cpus.update({vcpu: slot.cpu for vcpu, slot in zip(group.vcpus, slots, strict=True)})
        except NoFit:
            self._free, self._slots, self._memory = before
            raise
        return GuestAllocation(tuple(nodes), cpus)

    def _slots_with(self, node: node_choice.Node, cpus: list[int]) -> list[_Slot]:
        """The node's free slots of these CPUs. A vCPU may be on any CPU of the core that it uses up."""
        possible = {cpu: _Slot(cpu, slot.uses) for slot in self._slots[node] for cpu in slot.uses}
        return [possible[cpu] for cpu in cpus if cpu in possible]

    def _slots_of(self, node: node_choice.Node) -> list[_Slot]:
        """The node's free slots, core by core; unused cores first, so that guests share few cores."""
        free = self._free[node]
        unused, begun = [], []
        for core in self._cores[node]:
            if core <= free:
                unused += [_Slot(core.lowest, core)] if self._isolate else _each(core)
            elif not self._isolate:
                begun += _each(core & free)
        return unused + begun


def _is_satisfied(group: VcpuGroup, slots: list[_Slot]) -> bool:
    """Whether each vCPU of the group has a slot that it may use and shares with no other: two vCPUs on one CPU, or on
    one core with smt ``isolate``, use the same CPUs twice."""
    disjoint = sum(len(slot.uses) for slot in slots) == len(union(slot.uses for slot in slots))
    allowed = all(group.within(CpuSet.of([slot.cpu])) for slot in slots)
    return disjoint and allowed and len(slots) == len(group.vcpus)


def _within(group: VcpuGroup, slots: list[_Slot]) -> list[_Slot]:
    """The slots that the group may use, each with a CPU to which the group is bound."""
    if group.cpus is None:
        return slots
    return [_Slot(min(cpus), slot.uses) for slot in slots if (cpus := group.within(slot.uses))]


def _displace(
    context: Context, pool: CpuSet, free_cpus: _FreeCpus, newcomer: Guest, places: Mapping[str, GuestAllocation]
) -> tuple[_FreeCpus, dict[str, GuestAllocation]]:
    """The free CPUs and the places after one or two guests, with as few vCPUs as possible, have moved to make room for
    the newcomer. Raises NoFit where no two of them can."""
    allocated = [guest for guest in context.guests if guest.uuid in places]
    for movers in _movers(context, allocated, places, free_cpus.free, newcomer):
        trial = _FreeCpus(context, pool)
        for guest in allocated:
            if guest not in movers:
                trial.take_pinned(guest, {vcpu: CpuSet.of([cpu]) for vcpu, cpu in places[guest.uuid].cpus.items()})
        with suppress(NoFit):
            moved = {guest.uuid: trial.take_best(guest) for guest in (newcomer, *movers)}
            return trial, {**places, **moved}
    raise NoFit(_needs(newcomer), max(free_cpus.free.values(), default=0), "no other guest can move to make room")


def _movers(
    context: Context,
    allocated: list[Guest],
    places: Mapping[str, GuestAllocation],
    free: Mapping[node_choice.Node, int],
    newcomer: Guest,
) -> Iterator[tuple[Guest, ...]]:
    """The combinations of guests that could make room: one or two of the same nodes, sorted by their number, then by
    their vCPUs, both ascending. None where the host is full."""
    if sum(free.values()) < _needs(newcomer):
        return
    least = min(len(group.vcpus) for group in context.groups(newcomer))
    found = [
        (len(movers), sum(map(_needs, movers)), tuple(guest.uuid for guest in movers), movers)
        for count in range(1, min(_MOST_MOVERS, context.request.moves) + 1)
        for movers in combinations(allocated, count)
        if len({places[guest.uuid].nodes for guest in movers}) == 1
        and sum(free[node] for node in set(places[movers[0].uuid].nodes)) + sum(map(_needs, movers)) >= least
    ]
    for _, _, _, movers in sorted(found, key=lambda each: each[:3])[:_TRIALS]:
        yield movers


def _cores(context: Context, pool: CpuSet) -> list[CpuSet]:
    """The cores of a pool that the request's ``smt`` allows, in order of their lowest CPU."""
    cores = context.allocatable.cores_within(pool)
    match context.request.smt:
        case "isolate":
            # A slower core has no second thread that could stay idle.
            fast = context.snapshot.topology.core_classes[0]
            return [core for core in cores if core == context.allocatable.cores[core.lowest] and core <= fast]
        case "require":
            return [core for core in cores if len(core) > 1]
        case "prefer":
            return cores


def _each(cpus: CpuSet) -> list[_Slot]:
    return [_Slot(cpu, CpuSet.of([cpu])) for cpu in cpus]


def _occupied(context: Context) -> CpuSet:
    """The CPUs of the guests that the plan does not place, as far as one vCPU is pinned to one CPU."""
    return union(own_cpus(guest) for guest in context.others)


def free_slots(context: Context, pool: CpuSet, taken: CpuSet) -> dict[node_choice.Node, int]:
    """How many vCPUs each node has room for beside the ``taken`` CPUs of ``pool``, as the request's ``smt`` allows."""
    free, whole_cores = pool - taken - _occupied(context), context.request.smt == "isolate"
    return {
        node: sum(core <= free if whole_cores else len(core & free) for core in _cores(context, pool & cpus))
        for node, cpus in context.allocatable.nodes.items()
    }
