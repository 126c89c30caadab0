"""A CPU of its own for every vCPU, all of a guest on one NUMA node."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest import Guest
from pinner.model.plan import LeftOut
from pinner.planning.context import Context, guest_target, plugged
from pinner.planning.exclusions import own_cpus
from pinner.planning.strategies import node_choice

_TRIALS = 100
"""How many ways to make room are tried: each seats everybody anew."""


@dataclass(frozen=True, slots=True)
class GuestAllocation:
    """Where a guest sits: its node, and the CPU of each of its vCPUs by number."""

    node: node_choice.Node
    cpus: dict[int, int]


@dataclass(frozen=True, slots=True)
class Allocation:
    """Who sits where by guest UUID, and whom no node holds."""

    places: dict[str, GuestAllocation]
    unplaced: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A CPU for one vCPU, and all that is used up with it (with smt ``isolate`` its whole core)."""

    cpu: int
    uses: CpuSet


def allocate(context: Context, pool: CpuSet) -> Allocation:
    """Seat the context's guests on the CPUs of ``pool``.

    A guest that stands or sits as it should keeps its CPUs, so that a second plan changes nothing; the others follow,
    the largest first. Where one does not fit, at most two others make way. Who does not fit even so is unplaced, with
    the numbers.
    """
    free_cpus = _FreeCpus(context, pool)
    places: dict[str, GuestAllocation] = {}
    for masks_of in (context.recorded, context.current):
        for guest in context.guests:
            if guest.uuid not in places:
                with suppress(NoFit):
                    places[guest.uuid] = free_cpus.keep(guest, masks_of(guest))
    unplaced = []
    for guest in context.guests:
        if guest.uuid in places:
            continue
        try:
            places[guest.uuid] = free_cpus.give(context, guest)
        except NoFit as error:
            try:
                free_cpus, places = _displace(context, pool, free_cpus, guest, places)
            except NoFit:
                unplaced.append(LeftOut(guest_target(guest), error.message))
    return Allocation(places, tuple(unplaced))


class _FreeCpus:
    """The seats of a pool by node, and which of them are free."""

    def __init__(self, context: Context, pool: CpuSet) -> None:
        self._isolate = context.request.smt == "isolate"
        self._cores = {node: _cores(context, pool & cpus) for node, cpus in context.allocatable.nodes.items()}
        free = pool - _occupied(context)
        self._free = {node: free & cpus for node, cpus in context.allocatable.nodes.items()}
        self._slots = {node: self._slots_of(node) for node in self._cores}

    @property
    def free(self) -> Mapping[node_choice.Node, int]:
        """How many seats are free on each node."""
        return {node: len(slots) for node, slots in self._slots.items()}

    def keep(self, guest: Guest, places: Mapping[int, CpuSet]) -> GuestAllocation:
        """Leave the guest's vCPUs at their places. Raises NoFit where these are not free seats of one node."""
        masks = [places.get(vcpu, CpuSet()) for vcpu in plugged(guest)]
        cpus = [cpu for mask in masks if len(mask) == 1 for cpu in mask]
        homes = (node for node, free in self._free.items() if free.ids.issuperset(cpus) and len(cpus) == len(masks))
        for node in homes:
            possible = {cpu: _Slot(cpu, slot.uses) for slot in self._slots[node] for cpu in slot.uses}
            chosen = [possible[cpu] for cpu in cpus if cpu in possible]
            # Two vCPUs on one CPU, or on one core that each is to have for itself, use the same CPUs twice.
            alone = sum(len(slot.uses) for slot in chosen) == len(union(slot.uses for slot in chosen))
            if alone and len(chosen) == len(masks):
                return self._take(guest, node, chosen)
        raise NoFit(len(masks), 0, "it is not pinned to free CPUs of one node, one each")

    def give(self, context: Context, guest: Guest) -> GuestAllocation:
        """Seat the guest on the node that suits it best. Raises NoFit with the numbers."""
        node = node_choice.choose(context.snapshot, guest, self.free, self.free)
        return self._take(guest, node, self._slots[node][: len(plugged(guest))])

    def _take(self, guest: Guest, node: node_choice.Node, slots: list[_Slot]) -> GuestAllocation:
        self._free[node] -= union(slot.uses for slot in slots)
        self._slots[node] = self._slots_of(node)
        return GuestAllocation(node, {vcpu: slot.cpu for vcpu, slot in zip(plugged(guest), slots, strict=True)})

    def _slots_of(self, node: node_choice.Node) -> list[_Slot]:
        """The free seats, core by core; cores that nobody uses yet come first, so that guests share few."""
        free = self._free[node]
        untouched, begun = [], []
        for core in self._cores[node]:
            if core <= free:
                untouched += [_Slot(min(core.ids), core)] if self._isolate else _each(core)
            elif not self._isolate:
                begun += _each(core & free)
        return untouched + begun


def _displace(
    context: Context, pool: CpuSet, free_cpus: _FreeCpus, newcomer: Guest, places: Mapping[str, GuestAllocation]
) -> tuple[_FreeCpus, dict[str, GuestAllocation]]:
    """The room and the places when one guest or two, with the fewest vCPUs that do, have made way for the newcomer.
    Raises NoFit where no two of them can."""
    allocated = [guest for guest in context.guests if guest.uuid in places]
    for movers in _movers(allocated, places, free_cpus.free, len(plugged(newcomer))):
        trial = _FreeCpus(context, pool)
        for guest in allocated:
            if guest not in movers:
                trial.keep(guest, {vcpu: CpuSet.of([cpu]) for vcpu, cpu in places[guest.uuid].cpus.items()})
        with suppress(NoFit):
            moved = {guest.uuid: trial.give(context, guest) for guest in (newcomer, *movers)}
            return trial, {**places, **moved}
    raise NoFit(len(plugged(newcomer)), max(free_cpus.free.values(), default=0), "nobody can make way")


def _movers(
    allocated: list[Guest], places: Mapping[str, GuestAllocation], free: Mapping[node_choice.Node, int], asked: int
) -> Iterator[tuple[Guest, ...]]:
    """Who could make way: one guest or two of a node, the fewest vCPUs first. None where the host is full."""
    if sum(free.values()) < asked:
        return
    found = [
        (len(movers), sum(len(plugged(guest)) for guest in movers), tuple(guest.uuid for guest in movers), movers)
        for count in (1, 2)
        for movers in combinations(allocated, count)
        if len({places[guest.uuid].node for guest in movers}) == 1
        and free[places[movers[0].uuid].node] + sum(len(plugged(guest)) for guest in movers) >= asked
    ]
    for _, _, _, movers in sorted(found, key=lambda each: each[:3])[:_TRIALS]:
        yield movers


def _cores(context: Context, pool: CpuSet) -> list[CpuSet]:
    """The cores of a pool that the request's ``smt`` allows."""
    cores = context.allocatable.cores_within(pool)
    match context.request.smt:
        case "isolate":
            return [core for core in cores if core == context.allocatable.cores[min(core.ids)]]
        case "require":
            return [core for core in cores if len(core) > 1]
        case "prefer":
            return cores


def _each(cpus: CpuSet) -> list[_Slot]:
    return [_Slot(cpu, CpuSet.of([cpu])) for cpu in cpus]


def _occupied(context: Context) -> CpuSet:
    """The CPUs that guests which stay as they are have for themselves."""
    return union(own_cpus(guest) for guest in context.others)
