"""An allocation after moves of single guests to free CPUs, as long as each lowers the objective."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.objective import CONTENTION, TERMS
from pinner.model.plan.plan import Wanted
from pinner.model.plan.request import OPTIMAL
from pinner.planning.guest_spread import shared_cores
from pinner.planning.objective_terms import MeasuredPlacement
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import cpu_allocator
from pinner.planning.strategies.allocator.cpu_allocator import Allocation
from pinner.planning.strategies.allocator.free_cpus import FreeCpus, GuestAllocation
from pinner.planning.strategies.allocator.node_choice import preferences
from pinner.planning.strategies.single_moves import Homes, Near, SingleMoves, masks, measure, rise

WantedOf = Callable[[Guest, GuestAllocation], Iterable[Wanted]]


class _Allocated(NamedTuple):
    free: FreeCpus
    places: Mapping[str, GuestAllocation]
    measured: MeasuredPlacement


@dataclass(frozen=True, slots=True)
class _Mover:
    context: Context
    moves: SingleMoves
    of: WantedOf

    def moved(self, guest: Guest, now: _Allocated) -> Iterator[_Allocated]:
        if not _can_gain(guest, now.measured):
            return
        near = preferences(self.context.snapshot, guest, self.context.allocatable.nodes)
        disturbed = _is_disturbed(guest, now.measured)
        here = now.free.homes(guest, now.places[guest.uuid])
        is_possible = partial(self._is_possible, guest, near, disturbed, here)
        left = now.free.without([guest], now.places)
        for free, place in left.options(guest, near, _used_once(guest, now.measured), is_possible):
            planned = masks(self.context, self.of(guest, place))
            yield _Allocated(free, {**now.places, guest.uuid: place}, now.measured.moved(guest.uuid, planned))

    def _is_possible(self, guest: Guest, near: Near, disturbed: bool, homes: Homes, other: Homes) -> bool:
        """They are nearer, or as near and may have better CPUs or its devices."""
        farther = rise(self.moves.distance(near, homes), self.moves.distance(near, other))
        return farther < 0 or (not farther and (disturbed or (bool(guest.pci) and other != homes)))


def improved(
    context: Context, allocation: Allocation, pool: CpuSet, moves: SingleMoves, host: Sequence[Wanted], of: WantedOf
) -> Allocation:
    """Guests that have recorded or current CPUs of ``pool`` stay. ``host``: the places of its processes; ``of``: those
    of a guest. ``optimal`` keeps an allocation that is proven by its score."""
    if context.request.strategy == OPTIMAL and allocation.optimality and allocation.optimality.proven:
        return allocation
    places = allocation.places
    guests = [guest for guest in context.guests if guest.uuid in places]
    staying = {guest.uuid: places[guest.uuid] for guest in guests if _stays(context, guest, places[guest.uuid])}
    if len(staying) == len(guests):
        return allocation
    wanted = [*host, *(want for guest in guests for want in of(guest, places[guest.uuid]))]
    measured = measure(context).measured(masks(context, wanted))
    anew = [guest for guest in guests if guest.uuid not in staying]
    if not any(_can_gain(guest, measured) for guest in anew):
        return allocation
    context = cpu_allocator.kept_apart(context, pool)
    free = FreeCpus(context, pool)
    empty = free.cores
    for guest in guests:
        free.take_pinned(guest, {vcpu: CpuSet.one(cpu) for vcpu, cpu in places[guest.uuid].cpus.items()})

    mover = _Mover(context, moves, of)
    settled = moves.settled(_Allocated(free, places, measured), anew, mover.moved)
    if settled.places == places:
        return allocation
    together = [guest for guest in context.guests if free.is_packed(guest)]
    rated = cpu_allocator.optimality(context, settled.free, empty, together, settled.places, staying)
    return Allocation(dict(settled.places), allocation.unplaced, rated)


def _stays(context: Context, guest: Guest, place: GuestAllocation) -> bool:
    here = {vcpu: CpuSet.one(cpu) for vcpu, cpu in place.cpus.items()}
    return here in (context.recorded(guest), context.current(guest))


def _can_gain(guest: Guest, measured: MeasuredPlacement) -> bool:
    """Else none of the terms to which it adds can fall."""
    own, need = measured.spreads[guest.uuid], measured.measure.needs[guest.uuid]
    far = own.remote_memory or own.remote_devices or len(own.nodes) > need.nodes
    return bool(far) or _is_disturbed(guest, measured)


def _is_disturbed(guest: Guest, measured: MeasuredPlacement) -> bool:
    """Other CPUs at the same distance may lower the objective."""
    own, need = measured.spreads[guest.uuid], measured.measure.needs[guest.uuid]
    contended = any(measured.values[kind.name] for kind in TERMS if kind.tier == CONTENTION)
    return contended or len(own.l3) > need.l3 or bool(own.cores & shared_cores(measured.spreads.values()))


def _used_once(guest: Guest, measured: MeasuredPlacement) -> CpuSet:
    """Cores that one other guest alone uses: they would be shared."""
    others = [spread for uuid, spread in measured.spreads.items() if uuid != guest.uuid]
    return union(spread.cores for spread in others) - shared_cores(others)
