"""Moves guests' memory to the node of their vCPUs, and back.

The kernel moves from nodes to a node (migrate_pages(2)), not page by page: what came from several nodes lies together
then, and goes back to the one that had most of it.
"""

from collections.abc import Mapping
from dataclasses import replace

from pinner.apply.ports import Host
from pinner.model.change import MemoryChange
from pinner.model.errors import Gone, Invalid, PinnerError, StalePlan
from pinner.model.journal import Entry, EntryState
from pinner.model.memory import compared, lying, mib
from pinner.model.plan import Plan

STUCK_SHARE = 0.05
"""An undo after which more of a guest's memory lies elsewhere than before is stuck. Less than that is told, too: pages
that QEMU shares with others (libraries), and what it has taken meanwhile."""


def memory_changes(plan: Plan, host: Host) -> tuple[MemoryChange, ...]:
    """What has to move for all placed guests, as they are now.

    Raises Invalid where the plan gives no guest a node of its own, StalePlan where such a guest has ended.
    """
    placed = [(memory.target, memory.home) for memory in plan.memory if memory.home is not None]
    if not placed:
        why = "false: this plan gives no guest one of several NUMA nodes, so there is nowhere to move memory to"
        raise Invalid("migrate_memory", True, why)
    found = []
    try:
        for target, node in placed:
            before = host.memory(target)
            if remote := sum(kib for other, kib in before.items() if other != node):
                reason = f"{mib(remote)} are remote: its vCPUs get node {node}"
                found.append(MemoryChange(target, before, node, host.numatune(target), reason))
    except Gone as error:
        raise StalePlan(plan.id, (str(error),)) from None
    return tuple(found)


class MemoryMove:
    """One change of memory under way."""

    def __init__(self, entry: Entry, change: MemoryChange, host: Host) -> None:
        self.entry = entry
        self.touched = False
        """Whether anything may have been moved."""
        self._change = change
        self._host = host

    def make(self) -> None:
        """Move all that lies elsewhere. What cannot be moved is reported, no failure. Raises what Host raises."""
        change, host = self._change, self._host
        away = frozenset(host.memory(change.target)) - {change.node}
        self.touched = True
        if change.numatune:
            host.set_numatune(change.target, str(change.node))
        host.move_memory(change.target, away, change.node)
        self.entry = replace(self.entry, memory=compared(change.before, host.memory(change.target)))


def take_memory_back(entry: Entry, change: MemoryChange, host: Host) -> tuple[EntryState, str]:
    """Move back what came: ``undone``; ``gone`` or ``stuck``, and why; with the numbers of what could not be restored.

    Where it is not known whether anything was moved, what a guest takes and frees in the meantime is no reason to.
    """
    try:
        if change.numatune:
            host.set_numatune(change.target, change.numatune)
        misplaced = _misplaced(change.before, host.memory(change.target))
        if misplaced > (STUCK_SHARE * sum(change.before.values()) if entry.state == "intent" else 0):
            _move_back(change, host)
        return _compared(change, host.memory(change.target))
    except Gone as error:
        return "gone", str(error)
    except PinnerError as error:
        return "stuck", str(error)


def _move_back(change: MemoryChange, host: Host) -> None:
    before, now = change.before, host.memory(change.target)
    origin = max(before, key=lambda node: before[node])
    came = now.get(change.node, 0) > before.get(change.node, 0)
    if came and now.get(origin, 0) < before[origin]:
        host.move_memory(change.target, frozenset([change.node]), origin)


def _compared(change: MemoryChange, now: Mapping[int, int]) -> tuple[EntryState, str]:
    before = change.before
    misplaced = _misplaced(before, now)
    if not misplaced:
        return "undone", ""
    why = (
        f"{mib(misplaced)} do not lie where they did, for pages of several nodes cannot be told apart once they lie "
        f"together, and some do not move: before {lying(before)}; now {lying(now)}"
    )
    return "stuck" if misplaced > STUCK_SHARE * sum(before.values()) else "undone", why


def _misplaced(before: Mapping[int, int], now: Mapping[int, int]) -> int:
    """KiB on another node than before. What the guest has given back, or taken anew, is not in the wrong place."""
    parts = compared(before, now)
    left = sum(part.moved_kib for part in parts if part.moved_kib > 0)
    come = -sum(part.moved_kib for part in parts if part.moved_kib < 0)
    return min(left, come)
