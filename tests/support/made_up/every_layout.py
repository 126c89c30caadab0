"""The best score of a small packing, found by trying every layout."""

from collections.abc import Iterator, Sequence
from itertools import product

from pinner.planning.packing.allocation import scored
from pinner.planning.packing.values import PackingGuest, PackingNode, Piece, Score


def best_score(nodes: Sequence[PackingNode], guests: Sequence[PackingGuest]) -> Score:
    """The lowest score of all layouts."""
    scores = []
    for choice in product(*([(), *_places(nodes, guest)] for guest in guests)):
        used: dict[tuple[int, int], int] = {}
        for piece in (piece for pieces in choice for piece in pieces):
            used[piece.node, piece.domain] = used.get((piece.node, piece.domain), 0) + piece.cpus
        if all(count <= nodes[node].domains[domain].free for (node, domain), count in used.items()):
            layout = {guest.id: pieces for guest, pieces in zip(guests, choice, strict=True) if pieces}
            scores.append(scored(nodes, guests, layout))
    return min(scores)


def _places(nodes: Sequence[PackingNode], guest: PackingGuest) -> Iterator[tuple[Piece, ...]]:
    for position, node in enumerate(nodes):
        if node.id in guest.ranks:
            for counts in product(*(range(min(domain.free, guest.size) + 1) for domain in node.domains)):
                if sum(counts) == guest.size:
                    yield tuple(Piece(position, domain, count) for domain, count in enumerate(counts) if count)
