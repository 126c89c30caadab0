"""Where threads may run, in the few words that a table cell has room for."""

from collections import Counter
from collections.abc import Iterable

from pinner.model.change import Change, MemoryChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.memory import lying
from pinner.render import counted

SHOWN = 3
"""Masks that a cell names; the rest is counted."""


def masks(sets: Iterable[CpuSet]) -> str:
    """``0-31`` where all threads agree, else the commonest masks with how many threads have them."""
    counts = Counter(sets)
    if len(counts) <= 1:
        return str(next(iter(counts), "-")) or "-"
    shown = [f"{cpus} ({counted(count, 'thread')})" for cpus, count in counts.most_common(SHOWN)]
    more = len(counts) - len(shown)
    return "; ".join(shown) + (f"; {more} more" if more else "")


def ends(change: Change | MemoryChange) -> tuple[str, str]:
    """What a change found, and what it wants."""
    if isinstance(change, MemoryChange):
        return lying(change.before), change.goal
    return change.states[0] or masks(mask.cpus for mask in change.before), change.goal


def part(targets: Iterable[Target]) -> str:
    """The parts of one owner's targets of one kind: ``vCPU 0-15``, ``emulator``, ``process 812``."""
    targets = tuple(targets)
    first = targets[0]
    numbers = CpuSet.of(target.part for target in targets if target.part is not None)
    match first.kind:
        case "process":
            return f"process {first.owner}"
        case "partition" | "workqueue" | "emulator" | "memory":
            return first.kind
        case "vhost":
            return f"helper thread {numbers}"
        case "vcpu":
            return f"vCPU {numbers}"
        case "iothread":
            return f"iothread {numbers}"


def alike(changes: Iterable[Change]) -> list[list[Change]]:
    """Neighbouring changes of one owner and kind that go from and to the same CPUs for the same reason, together."""
    groups: list[list[Change]] = []
    for change in changes:
        if groups and _sort(groups[-1][-1]) == _sort(change) and change.target.kind != "process":
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _sort(change: Change) -> tuple[object, ...]:
    before = frozenset(mask.cpus for mask in change.before)
    return (change.target.kind, change.target.owner, before, change.after, change.reason)
