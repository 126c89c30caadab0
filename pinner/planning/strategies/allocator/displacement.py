"""Guests that move to make room for another one."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations, islice

from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.free_cpus import FreeCpus, GuestAllocation, needs

_TRIALS = 100
"""How many combinations of guests are tried to make room for one guest. Each trial allocates the guests that move."""

_MOST_MOVERS = 2
"""How many guests move at most to make room for one guest, where the request allows as many."""


def displaced(
    context: Context,
    free_cpus: FreeCpus,
    newcomer: Guest,
    places: Mapping[str, GuestAllocation],
    most: int,
) -> tuple[FreeCpus, dict[str, GuestAllocation]]:
    """The free CPUs and the places after one or two guests, with as few vCPUs as possible, have moved to make room for
    the newcomer. At most ``most`` guests move. Raises NoFit where that is not enough."""
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
    """The combinations of guests that could make room: one or two of the same nodes, sorted by their number, then by
    their vCPUs, both ascending. None where the host is full."""
    if sum(free.values()) < needs(newcomer):
        return
    least = min(len(group.vcpus) for group in context.groups(newcomer))
    found = [
        (len(movers), sum(map(needs, movers)), tuple(guest.uuid for guest in movers), movers)
        for count in range(1, min(_MOST_MOVERS, most) + 1)
        for movers in combinations(allocated, count)
        if len({places[guest.uuid].nodes for guest in movers}) == 1
        and sum(free[node] for node in set(places[movers[0].uuid].nodes)) + sum(map(needs, movers)) >= least
    ]
    possible = (
        movers
        for _, _, _, movers in sorted(found, key=lambda each: each[:3])
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
    """Whether numbers alone allow guests to leave ``nodes``, so that a guest of this size gets one of these."""
    groups = sorted((len(group.vcpus) for guest in movers for group in context.groups(guest)), reverse=True)
    for node in set(nodes):
        left = dict(free)
        for guest in movers:
            for home, group in zip(nodes, context.groups(guest), strict=False):
                left[home] += len(group.vcpus)
        left[node] -= size
        if left[node] >= 0 and all(_fits_best(left, group) for group in groups):
            return True
    return False


def _fits_best(left: dict[NodeId, int], size: int) -> bool:
    """Whether a node has room for so many vCPUs; then the fullest such node has them."""
    nodes = [node for node, count in left.items() if count >= size]
    if not nodes:
        return False
    left[min(nodes, key=lambda node: left[node])] -= size
    return True
