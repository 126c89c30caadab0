"""How much of a guest's memory a run moved from node to node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pinner.model.text import mib


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """A guest's memory on one node before and after a move, in KiB from numa_maps: ``before_kib`` is the sum of
    ``moved_kib`` and ``stayed_kib``."""

    node: int
    """The id of the NUMA node."""
    before_kib: int
    """KiB of the guest on the node before the change."""
    moved_kib: int
    """How much less the node has now; below 0: how much more."""
    stayed_kib: int
    """How much the node has now."""


def compared(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[NodeMemory, ...]:
    """Ascending by node."""
    return tuple(
        NodeMemory(node, before.get(node, 0), before.get(node, 0) - after.get(node, 0), after.get(node, 0))
        for node in sorted({*before, *after})
    )


def moved_text(parts: Iterable[NodeMemory]) -> str:
    """``node 1: 500 MiB moved, 2 MiB stayed``; without nodes that gained memory."""
    return "; ".join(
        f"node {part.node}: {mib(part.moved_kib)} moved, {mib(part.stayed_kib)} stayed"
        for part in parts
        if part.moved_kib >= 0
    )
