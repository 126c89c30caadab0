"""A CPU of its own for every vCPU, all of a guest on one NUMA node."""

from dataclasses import dataclass

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest import Guest
from pinner.model.plan import LeftOut
from pinner.planning import nodes
from pinner.planning.context import Context, plugged


@dataclass(frozen=True, slots=True)
class Place:
    """Where a guest sits: its node, and the CPU of each of its vCPUs by number."""

    node: nodes.Node
    cpus: dict[int, int]


@dataclass(frozen=True, slots=True)
class Seating:
    """Who sits where by guest UUID, and whom no node holds."""

    places: dict[str, Place]
    unplaced: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class _Seat:
    """A CPU for one vCPU, and all that is used up with it (with smt ``isolate`` its whole core)."""

    cpu: int
    uses: CpuSet


def seat(context: Context, pool: CpuSet) -> Seating:
    """Seat the context's guests on the CPUs of ``pool``.

    A guest that sits as it should keeps its CPUs, so that a second plan changes nothing; the others follow, the largest
    first. Who does not fit is unplaced, with the numbers.
    """
    room = _Room(context, pool)
    places, unplaced, newcomers = {}, [], []
    for guest in context.guests:
        try:
            places[guest.uuid] = room.keep(guest)
        except NoFit:
            newcomers.append(guest)
    for guest in newcomers:
        try:
            places[guest.uuid] = room.give(context, guest)
        except NoFit as error:
            unplaced.append(LeftOut(f"guest {guest.name}", error.message))
    return Seating(places, tuple(unplaced))


class _Room:
    """The seats of a pool by node, and which of them are free."""

    def __init__(self, context: Context, pool: CpuSet) -> None:
        self._isolate = context.request.smt == "isolate"
        self._cores = {node: _cores(context, pool & cpus) for node, cpus in context.supply.nodes.items()}
        free = pool - _occupied(context)
        self._free = {node: free & cpus for node, cpus in context.supply.nodes.items()}
        self._seats = {node: self._seats_of(node) for node in self._cores}

    def keep(self, guest: Guest) -> Place:
        """Leave the guest where it is. Raises NoFit where it does not sit on free seats of one node."""
        masks = [vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread]
        cpus = [cpu for mask in masks if len(mask) == 1 for cpu in mask]
        homes = (node for node, free in self._free.items() if free.ids.issuperset(cpus) and len(cpus) == len(masks))
        for node in homes:
            possible = {cpu: _Seat(cpu, seat.uses) for seat in self._seats[node] for cpu in seat.uses}
            chosen = [possible[cpu] for cpu in cpus if cpu in possible]
            # Two vCPUs on one CPU, or on one core that each is to have for itself, use the same CPUs twice.
            alone = sum(len(seat.uses) for seat in chosen) == len(union(seat.uses for seat in chosen))
            if alone and len(chosen) == len(masks):
                return self._take(guest, node, chosen)
        raise NoFit(len(masks), 0, "it is not pinned to free CPUs of one node, one each")

    def give(self, context: Context, guest: Guest) -> Place:
        """Seat the guest on the node that suits it best. Raises NoFit with the numbers."""
        count = {node: len(seats) for node, seats in self._seats.items()}
        node = nodes.choose(context.snapshot, guest, count, count)
        return self._take(guest, node, self._seats[node][: len(plugged(guest))])

    def _take(self, guest: Guest, node: nodes.Node, seats: list[_Seat]) -> Place:
        self._free[node] -= union(seat.uses for seat in seats)
        self._seats[node] = self._seats_of(node)
        return Place(node, {vcpu: seat.cpu for vcpu, seat in zip(plugged(guest), seats, strict=True)})

    def _seats_of(self, node: nodes.Node) -> list[_Seat]:
        """The free seats, core by core; cores that nobody uses yet come first, so that guests share few."""
        free = self._free[node]
        untouched, begun = [], []
        for core in self._cores[node]:
            if core <= free:
                untouched += [_Seat(min(core.ids), core)] if self._isolate else _each(core)
            elif not self._isolate:
                begun += _each(core & free)
        return untouched + begun


def _cores(context: Context, pool: CpuSet) -> list[CpuSet]:
    """The cores of a pool that the request's ``smt`` allows."""
    cores = context.supply.cores_within(pool)
    match context.request.smt:
        case "isolate":
            return [core for core in cores if core == context.supply.cores[min(core.ids)]]
        case "require":
            return [core for core in cores if len(core) > 1]
        case "prefer":
            return cores


def _each(cpus: CpuSet) -> list[_Seat]:
    return [_Seat(cpu, CpuSet.of([cpu])) for cpu in cpus]


def _occupied(context: Context) -> CpuSet:
    """The CPUs on which vCPUs of guests that stay as they are have been pinned one by one."""
    threads = (vcpu.thread for guest in context.others for vcpu in guest.vcpus if vcpu.thread)
    return union(thread.affinity for thread in threads if len(thread.affinity) == 1)
