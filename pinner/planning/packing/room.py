"""The free CPUs of a host while guests are placed one after the other."""

from collections.abc import Sequence

from pinner.planning.packing.values import PackingGuest, PackingNode, Piece


class PackingRoom:
    """How many CPUs are free in each domain. Numbers only: which CPUs these are follows from the whole layout.

    A guest takes up its footprint, which is its size, or more where it shall share no core with another guest.
    """

    def __init__(self, nodes: Sequence[PackingNode]) -> None:
        self.nodes = nodes
        self.free = [[domain.free for domain in node.domains] for node in nodes]
        self.total = [node.free for node in nodes]
        self.memory = [node.memory for node in nodes]
        self.layout: dict[str, tuple[Piece, ...]] = {}
        self._taken: dict[str, tuple[PackingGuest, list[tuple[int, int, int]]]] = {}

    def fits(self, guest: PackingGuest, node: int) -> bool:
        """Whether the node has CPUs and memory for the guest."""
        memory = self.memory[node]
        return self.total[node] >= guest.size and (memory is None or memory >= guest.memory)

    def possible(self, guest: PackingGuest) -> list[int]:
        """The positions of the nodes where the guest fits."""
        large = [node for node, total in enumerate(self.total) if total >= guest.size]
        return [node for node in large if self.nodes[node].id in guest.ranks and self.fits(guest, node)]

    def spans(self, size: int, node: int) -> int:
        """How many domains of the node a guest of this size would span."""
        frees = self.free[node]
        if max(frees) >= size:
            return 1
        count, rest = 0, size
        for free in sorted(frees, reverse=True):
            count, rest = count + 1, rest - free
            if rest <= 0:
                break
        return count

    def place(self, guest: PackingGuest, node: int, footprint: int) -> None:
        """Place the guest on the node: in the fullest domain that has room, or else in the fewest domains.

        Of a guest that spans domains, the emptiest domains hold all but the rest, and the fullest one with room for it
        holds the rest.
        """
        frees, rest, pieces = self.free[node], guest.size, []
        if frees[first := self._best(frees, rest, footprint)] >= rest:
            self.place_in(guest, node, first, footprint)
            return
        while rest:
            domain = self._best(frees, rest, footprint)
            piece = min(rest, frees[domain])
            pieces.append(Piece(node, domain, piece))
            footprint, rest = footprint - piece, rest - piece
            frees[domain] -= piece
        self._taken[guest.id] = guest, [(piece.node, piece.domain, piece.cpus) for piece in pieces]
        last = pieces[-1]
        if (more := min(footprint, frees[last.domain])) > 0:
            frees[last.domain] -= more
            self._taken[guest.id][1].append((node, last.domain, more))
        self.total[node] = sum(frees)
        if (memory := self.memory[node]) is not None:
            self.memory[node] = memory - guest.memory
        self.layout[guest.id] = tuple(sorted(pieces))

    def place_in(self, guest: PackingGuest, node: int, domain: int, footprint: int) -> None:
        """Place the guest in one domain, which has room for it."""
        taken = min(footprint, self.free[node][domain])
        self.free[node][domain] -= taken
        self.total[node] -= taken
        if (memory := self.memory[node]) is not None:
            self.memory[node] = memory - guest.memory
        self._taken[guest.id] = guest, [(node, domain, taken)]
        self.layout[guest.id] = (Piece(node, domain, guest.size),)

    def remove(self, name: str) -> None:
        """Take the guest away again."""
        guest, taken = self._taken.pop(name)
        for node, domain, count in taken:
            self.free[node][domain] += count
            self.total[node] += count
        node = taken[0][0]
        if (memory := self.memory[node]) is not None:
            self.memory[node] = memory + guest.memory
        del self.layout[name]

    @staticmethod
    def _best(frees: list[int], rest: int, footprint: int) -> int:
        for wanted in (footprint, rest):
            if large := [(free, domain) for domain, free in enumerate(frees) if free >= wanted]:
                return min(large)[1]
        return frees.index(max(frees))
