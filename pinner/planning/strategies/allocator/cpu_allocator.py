"""Allocates a CPU of its own to every vCPU, all of a guest on one NUMA node, or on the nodes that bind it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, islice

from pinner.model.cpuset import CpuSet
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import Optimality
from pinner.model.plan.plan import LeftOut
from pinner.model.text import counted
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import guest_packing, node_choice
from pinner.planning.strategies.allocator.free_cpus import FreeCpus, GuestAllocation, free_slots, is_pinned, needs

_Places = Mapping[str, GuestAllocation]


@dataclass(frozen=True, slots=True)
class Allocation:
    places: dict[str, GuestAllocation]
    unplaced: tuple[LeftOut, ...]
    optimality: Optimality | None = None


def allocate(context: Context, pool: CpuSet) -> Allocation:
    """CPUs of ``pool`` for the context's guests.

    1. A guest keeps its recorded or current CPUs, where they are free slots, one for each vCPU. So a second plan
    changes nothing.
    2. Guests that are bound, or wider than every node, take the first slots of the best nodes (node_choice); the wide
    ones after all others where fewer guests are left over then.
    3. The others are packed (guest_packing).
    4. For a guest left over, one or two others move (``displaced``), or all packed guests anew, where more fit then.
    """
    context = kept_apart(context, pool)
    allocation = _allocated(context, pool)
    is_wide = FreeCpus(context, pool).is_wide
    if allocation.unplaced and any(guest.uuid in allocation.places and is_wide(guest) for guest in context.guests):
        return min(allocation, _allocated(context, pool, wide_last=True), key=lambda each: len(each.unplaced))
    return allocation


def _allocated(context: Context, pool: CpuSet, *, wide_last: bool = False) -> Allocation:
    free_cpus = FreeCpus(context, pool)
    empty, staying = free_cpus.cores, _staying(context, free_cpus)
    places = dict(staying)
    together = []
    for guest in context.guests:
        if free_cpus.is_packed(guest):
            together.append(guest)
        elif guest.uuid not in places and not (wide_last and free_cpus.is_wide(guest)):
            with suppress(NoFit):
                places[guest.uuid] = free_cpus.take_best(guest)
    waiting = [guest for guest in together if guest.uuid not in places]
    if waiting:
        packed = free_cpus.pack(waiting)
        packed_now = free_cpus.places(waiting, packed)
        places |= packed_now
        if len(waiting) == len(together) and len(places) == len(context.guests):
            found = guest_packing.optimality_of(packed.packing, packed.packing.score)
            return Allocation(places, (), _beyond(context, together, found))
        free_cpus.take_packed(waiting, packed_now)
    free_cpus, places = _with_room_made(context, free_cpus, places, staying)
    trial, anew = _packed_anew(context, free_cpus, places, staying)
    moves = sum(1 for uuid, place in staying.items() if anew.get(uuid) != place)
    if anew is not places and moves <= context.request.moves:
        free_cpus, places = _with_room_made(context, trial, anew, staying)
    unplaced = tuple(
        _left_out(context, free_cpus, guest, places, moves if guest.uuid in anew else 0)
        for guest in context.guests
        if guest.uuid not in places
    )
    return Allocation(places, unplaced, optimality(context, free_cpus, empty, together, places, staying))


def kept_apart(context: Context, pool: CpuSet) -> Context:
    return core_classes.kept_apart(
        context, pool, lambda cpus: free_slots(context, cpus, CpuSet()), crowd=False, one_to_one=True
    )


def _left_out(context: Context, free_cpus: FreeCpus, guest: Guest, places: _Places, moves: int) -> LeftOut:
    hint = f"; it has a place after moves of {counted(moves, 'guest')} (moves, or rebalance)" if moves else ""
    return LeftOut(guest.target, why_unplaced(context, free_cpus, guest, places) + hint)


def _staying(context: Context, free_cpus: FreeCpus) -> dict[str, GuestAllocation]:
    places: dict[str, GuestAllocation] = {}
    for masks_of in (context.recorded, context.current) if context.places else (context.current,):
        for guest in context.guests:
            if guest.uuid not in places and is_pinned(guest, masks := masks_of(guest)):
                with suppress(NoFit):
                    places[guest.uuid] = free_cpus.take_pinned(guest, masks)
    return places


def _beside(free_cpus: FreeCpus, together: Sequence[Guest], places: _Places) -> FreeCpus:
    return free_cpus.without((guest for guest in together if guest.uuid in places), places)


def optimality(
    context: Context,
    free_cpus: FreeCpus,
    empty: guest_packing.FreeCores,
    together: Sequence[Guest],
    places: _Places,
    staying: _Places,
) -> Optimality | None:
    """``empty``: before any guest has taken CPUs."""
    if not together:
        return None
    taken = {uuid: tuple(place.cpus.values()) for uuid, place in places.items()}
    if len(together) < len(context.guests):
        empty = _beside(free_cpus, together, places).cores
    some_stay = any(guest.uuid in staying for guest in together)
    found = guest_packing.optimality(context, empty, together, taken, some_stay=some_stay)
    return _beyond(context, together, found)


def _beyond(context: Context, together: Sequence[Guest], optimality: Optimality) -> Optimality:
    packed = {guest.uuid for guest in together}
    return replace(optimality, beyond=tuple(guest.name for guest in context.guests if guest.uuid not in packed))


def _moves_left(context: Context, staying: _Places, places: _Places) -> int:
    return context.request.moves - sum(1 for uuid, place in staying.items() if places.get(uuid) != place)


def _with_room_made(
    context: Context, free_cpus: FreeCpus, places: dict[str, GuestAllocation], staying: _Places
) -> tuple[FreeCpus, dict[str, GuestAllocation]]:
    before = -1
    while before != len(places):
        before = len(places)
        for guest in context.guests:
            if guest.uuid not in places:
                with suppress(NoFit):
                    places[guest.uuid] = free_cpus.take_best(guest)
                    continue
                with suppress(NoFit):
                    most = _moves_left(context, staying, places)
                    free_cpus, places = displaced(context, free_cpus, guest, places, most)
    return free_cpus, places


def _packed_anew(
    context: Context, free_cpus: FreeCpus, places: dict[str, GuestAllocation], staying: _Places
) -> tuple[FreeCpus, dict[str, GuestAllocation]]:
    """None of ``staying`` loses its place."""
    together = [guest for guest in context.guests if free_cpus.is_packed(guest)]
    unplaced = sum(1 for guest in together if guest.uuid not in places)
    if not unplaced:
        return free_cpus, places
    trial = _beside(free_cpus, together, places)
    # Arithmetic says for most hosts that it would be in vain.
    if guest_packing.least_unplaced(context, trial.cores, together) >= unplaced:
        return free_cpus, places
    others = {guest.uuid for guest in together}
    anew = {uuid: place for uuid, place in places.items() if uuid not in others}
    anew |= trial.pack_and_take(together)
    better = len(anew) > len(places) and staying.keys() <= anew.keys()
    return (trial, anew) if better else (free_cpus, places)


def why_unplaced(context: Context, free_cpus: FreeCpus, guest: Guest, places: Mapping[str, GuestAllocation]) -> str:
    size, whole = needs(guest), free_cpus.whole
    try:
        if free_cpus.is_packed(guest) and size > max(whole.values(), default=0):
            node_choice.choose(context.snapshot, guest, context.groups(guest)[0], whole, whole, memory=free_cpus.memory)
        free_cpus.take_best(guest)
    except NoFit as error:
        return f"{error.message}{_remedy(context, free_cpus, guest, places)}"
    raise AssertionError(f"guest {guest.name} fits, but has no place")


def _remedy(context: Context, free_cpus: FreeCpus, guest: Guest, places: Mapping[str, GuestAllocation]) -> str:
    size, free, whole = needs(guest), free_cpus.free, free_cpus.whole
    if not free_cpus.is_packed(guest):
        return ""
    group = context.groups(guest)[0]
    nodes = node_choice.with_memory(context.snapshot, guest, group, free, free_cpus.memory)
    if not nodes:
        return ""
    node, such = max(nodes, key=lambda node: free[node]), ""
    if size > max(whole.values()):
        lacking = size - sum(whole.values())
        where = " on all nodes together" if len(whole) > 1 else _on(node)
    else:
        lacking, where = size - free[node], _on(node)
        leaving = [each for each in context.guests if each.uuid in places and places[each.uuid].nodes == (node,)]
        enough = [each for each in leaving if needs(each) >= lacking]
        if enough:
            such = f", such as those of guest {min(enough, key=lambda each: (needs(each), each.uuid)).name},"
    what = "core" if context.request.smt == "isolate" else "CPU"
    return f"; {lacking} more {what}{'s' * (lacking > 1)}{where}{such} would make room" if lacking > 0 else ""


def _on(node: NodeId) -> str:
    return "" if node is None else f" on node {node}"


_TRIALS = 100
"""Combinations, each an allocation of the guests that move."""

_MOST_MOVERS = 2


def displaced(
    context: Context,
    free_cpus: FreeCpus,
    newcomer: Guest,
    places: Mapping[str, GuestAllocation],
    most: int,
) -> tuple[FreeCpus, dict[str, GuestAllocation]]:
    """After at most ``most`` guests, with as few vCPUs as possible, have made room. Raises NoFit where that is not
    enough."""
    allocated = [guest for guest in context.guests if guest.uuid in places]
    for movers in _movers(context, allocated, places, free_cpus.free, newcomer, most):
        trial = free_cpus.without(movers, places)
        with suppress(NoFit):
            return trial, {**places, **trial.take_all((newcomer, *movers))}
    raise NoFit(needs(newcomer), max(free_cpus.free.values(), default=0), "no other guest can move to make room")


def _movers(
    context: Context,
    allocated: list[Guest],
    places: Mapping[str, GuestAllocation],
    free: Mapping[NodeId, int],
    newcomer: Guest,
    most: int,
) -> Iterator[tuple[Guest, ...]]:
    """By number, then by vCPUs; one or two of the same nodes. None where the host is full."""
    if sum(free.values()) < needs(newcomer):
        return
    least = min(len(group.vcpus) for group in context.groups(newcomer))
    candidates = [
        (len(movers), sum(map(needs, movers)), tuple(guest.uuid for guest in movers), movers)
        for count in range(1, min(_MOST_MOVERS, most) + 1)
        for movers in combinations(allocated, count)
        if len({places[guest.uuid].nodes for guest in movers}) == 1
        and sum(free[node] for node in set(places[movers[0].uuid].nodes)) + sum(map(needs, movers)) >= least
    ]
    possible = (
        movers
        for _, _, _, movers in sorted(candidates, key=lambda each: each[:3])
        if len(context.groups(newcomer)) > 1
        or _could_move(context, movers, places[movers[0].uuid].nodes, free, needs(newcomer))
    )
    yield from islice(possible, _TRIALS)


def _could_move(
    context: Context,
    movers: tuple[Guest, ...],
    nodes: tuple[NodeId, ...],
    free: Mapping[NodeId, int],
    size: int,
) -> bool:
    """By numbers alone: a guest of this size gets one of ``nodes``."""
    groups = sorted((len(group.vcpus) for guest in movers for group in context.groups(guest)), reverse=True)
    for node in set(nodes):
        free_then = dict(free)
        for guest in movers:
            for home, group in zip(nodes, context.groups(guest), strict=False):
                free_then[home] += len(group.vcpus)
        free_then[node] -= size
        if free_then[node] >= 0 and all(_fits_best(free_then, group) for group in groups):
            return True
    return False


def _fits_best(free: dict[NodeId, int], size: int) -> bool:
    nodes = [node for node, count in free.items() if count >= size]
    if not nodes:
        return False
    free[min(nodes, key=lambda node: free[node])] -= size
    return True
