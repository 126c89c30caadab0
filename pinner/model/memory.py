"""A guest's memory on its way from node to node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What became of a guest's memory on one node, in KiB from numa_maps before and after: ``before_kib`` is
    ``moved_kib`` and ``stayed_kib`` together."""

    node: int
    before_kib: int
    moved_kib: int
    """How much less it is now; below 0: how much has come."""
    stayed_kib: int
    """How much lies there now."""


def compared(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[NodeMemory, ...]:
    """Two readings of numa_maps, node by node in ascending order."""
    return tuple(
        NodeMemory(node, before.get(node, 0), before.get(node, 0) - after.get(node, 0), after.get(node, 0))
        for node in sorted({*before, *after})
    )


def mib(kib: int) -> str:
    """KiB as MiB for people; less than one stays in KiB."""
    return f"{kib} KiB" if abs(kib) < 1024 else f"{kib / 1024:.1f} MiB"


def lying(per_node: Mapping[int, int]) -> str:
    """Memory by node for people: ``node 0: 12 MiB, node 1: 500 MiB``."""
    return ", ".join(f"node {node}: {mib(kib)}" for node, kib in sorted(per_node.items())) or "nowhere"


def moved_text(parts: Iterable[NodeMemory]) -> str:
    """What moved and what stayed, for people: ``node 1: 500 MiB moved, 2 MiB stayed``; nodes that gained are left
    out."""
    return "; ".join(
        f"node {part.node}: {mib(part.moved_kib)} moved, {mib(part.stayed_kib)} stayed"
        for part in parts
        if part.moved_kib >= 0
    )
