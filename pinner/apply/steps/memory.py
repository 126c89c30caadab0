"""A change of memory: a guest's memory moves to the node of its vCPUs. migrate_pages(2) moves to one node: so an undo
moves memory of several nodes to the one that had most of it."""

from collections.abc import Mapping
from dataclasses import replace

from pinner.apply.ports import Host
from pinner.model.change import MemoryChange
from pinner.model.errors import Gone, Invalid, PinnerError, StalePlan
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Entry, EntryState, memory_moved
from pinner.model.text import memory_by_node, mib

STUCK_SHARE = 0.05
"""The share of a guest's memory on a wrong node above which an undo is stuck. Less is reported: pages that QEMU shares
with other processes, and memory allocated meanwhile."""


def memory_changes(plan: Plan, host: Host) -> tuple[MemoryChange, ...]:
    """From the nodes when the run begins, so they cannot be stale. Raises Invalid where the plan gives no guest a node
    of its own, StalePlan where such a guest has ended."""
    placed = [(memory.target, memory.home) for memory in plan.memory if memory.home is not None]
    if not placed:
        why = "false: this plan gives no guest one of several NUMA nodes, so there is no node to move memory to"
        raise Invalid("migrate_memory", True, why)
    changes = []
    try:
        for target, node in placed:
            before = host.memory(target)
            if remote := sum(kib for other, kib in before.items() if other != node):
                reason = f"{mib(remote)} are remote: its vCPUs get node {node}"
                changes.append(MemoryChange(target, before, node, host.guests.numatune(target), reason))
    except Gone as error:
        raise StalePlan(plan.id, (str(error),)) from None
    return tuple(changes)


class MemoryStep:
    def __init__(self, entry: Entry, change: MemoryChange, host: Host) -> None:
        self.entry = entry
        self.touched = False
        self._change = change
        self._host = host

    def make(self) -> None:
        """Memory that cannot be moved is reported, and no failure."""
        change, host = self._change, self._host
        away = frozenset(host.memory(change.target)) - {change.node}
        self.touched = True
        if change.numatune:
            host.guests.set_numatune(change.target, str(change.node))
        host.move_memory(change.target, away, change.node)
        self.entry = replace(self.entry, memory=memory_moved(change.before, host.memory(change.target)))


def undo(entry: Entry, change: MemoryChange, host: Host) -> tuple[EntryState, str]:
    """Unless a move is known, memory that the guest allocates and frees is no reason to move any."""
    try:
        if change.numatune:
            host.guests.set_numatune(change.target, change.numatune)
        misplaced = _misplaced(change.before, host.memory(change.target))
        if misplaced > (STUCK_SHARE * sum(change.before.values()) if entry.state == "intent" else 0):
            _move_back(change, host)
        return _outcome(change, host.memory(change.target))
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


def _outcome(change: MemoryChange, now: Mapping[int, int]) -> tuple[EntryState, str]:
    before = change.before
    misplaced = _misplaced(before, now)
    if not misplaced:
        return "undone", ""
    why = (
        f"{mib(misplaced)} are not on their prior node: the kernel cannot separate pages of several nodes once they "
        f"lie on one, and some pages do not move: before {memory_by_node(before)}; now {memory_by_node(now)}"
    )
    return "stuck" if misplaced > STUCK_SHARE * sum(before.values()) else "undone", why


def _misplaced(before: Mapping[int, int], now: Mapping[int, int]) -> int:
    """KiB on another node than before, without memory freed or newly allocated."""
    parts = memory_moved(before, now)
    gone = sum(part.moved_kib for part in parts if part.moved_kib > 0)
    come = -sum(part.moved_kib for part in parts if part.moved_kib < 0)
    return min(gone, come)
