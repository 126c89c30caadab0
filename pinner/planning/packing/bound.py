"""The arithmetic bound of a packing: no layout of these guests on these nodes has a lower score."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from pinner.model.machine.topology import NodeId
from pinner.planning.packing.values import PackingGuest, PackingNode, Score, needed_domains


def bound(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> Score:
    """A score that is not above the best one; docs/strategies.md has the arithmetic."""
    alike = Counter((guest.size, tuple(guest.ranks)) for guest in guests)
    needs = ((size, needed_domains(nodes, size, ranks), count) for (size, ranks), count in alike.items())
    fitting = sorted(need for size, domains, count in needs if domains for need in [(size, domains)] * count)
    room = sum(node.free for node in nodes)
    placed = bisect_right(list(accumulate([size for size, _ in fitting])), room)
    sizes = [size for size, _ in fitting[:placed]]
    alone = [size for size, domains in fitting[:placed] if domains == 1]
    rank = least_rank(nodes, guests) if placed == len(guests) else 0
    return Score(
        len(guests) - placed, rank, _shared(nodes, sizes), _extra(nodes, alone) if placed == len(fitting) else 0
    )


def least_rank(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> int:
    """A node has room for some of the guests that prefer it to every other node. Each further one is on its second best
    node at best."""
    if not any(any(guest.ranks.values()) for guest in guests):
        return 0
    preferring: dict[NodeId, list[PackingGuest]] = {}
    for guest in guests:
        if len(guest.best) == 1:
            preferring.setdefault(next(iter(guest.best)), []).append(guest)
    least = sum(min(guest.ranks.values()) for guest in guests)
    for node in nodes:
        here = preferring.get(node.id, [])
        room = sum(1 for total in accumulate(sorted(guest.size for guest in here)) if total <= node.free)
        least += sum(sorted(map(_step, here))[: len(here) - room])
    return least


def _step(guest: PackingGuest) -> int:
    """0 for a guest that has one node."""
    ranks = sorted(set(guest.ranks.values()))
    return ranks[1] - ranks[0] if len(ranks) > 1 else 0


class Cores(NamedTuple):
    width: int
    """The most free CPUs of a core."""
    whole: int
    """Cores that no guest has begun."""
    most: int
    """So many guests more than one share a core."""


def cores(nodes: Sequence[PackingNode]) -> Cores:
    every = [domain for node in nodes for domain in node.domains]
    begun = max([free.bit_count() for domain in every for free in domain.begun], default=0)
    others = max([domain.width for domain in every if domain.whole], default=0)
    return Cores(
        width=max(begun, others) or 1,
        whole=sum([len(domain.whole) + len(domain.loose) for domain in every]),
        most=max(begun, others - 1) or 1,
    )


def _shared(nodes: Sequence[PackingNode], sizes: Sequence[int]) -> int:
    width, whole, most = cores(nodes)
    lacking = sum([-(-size // width) for size in sizes]) - whole
    return max(0, -(-lacking // most))


def _extra(nodes: Sequence[PackingNode], sizes: Sequence[int]) -> int:
    frees = [domain.free for node in nodes for domain in node.domains]
    largest = max(frees, default=0)
    # Only one of two guests that together are larger than every domain is in a domain.
    wide = [size for size in sizes if largest < 2 * size]
    return max(0, len(wide) - sum(1 for free in frees if free >= min(wide))) if wide else 0
