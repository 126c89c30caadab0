"""Small texts for people, also of a change."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import assert_never

from pinner.model.change import AffinityChange, Change, MemoryChange, MetadataChange, PartPin, StateChange, overlaid
from pinner.model.cpuset import CpuSet


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[str], most: int, separator: str = ", ") -> str:
    """``a, b and 3 more``, or ``a; b; and 3 more``."""
    return separator.join(items[:most]) + and_more(len(items) - most, " " if separator == ", " else separator)


def and_more(others: int, before: str = " ") -> str:
    return f"{before}and {others} more" if others > 0 else ""


def ranges(numbers: Iterable[int]) -> str:
    """``0-3,8``; also for numbers larger than those of CPUs."""
    pairs = enumerate(sorted(set(numbers)))
    runs = ([number for _, number in run] for _, run in groupby(pairs, lambda pair: pair[1] - pair[0]))
    return ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def mib(kib: int) -> str:
    """Less than one stays in KiB."""
    return f"{kib} KiB" if abs(kib) < 1024 else f"{kib / 1024:.1f} MiB"


def memory_by_node(per_node: Mapping[int, int]) -> str:
    """``node 0: 12.0 MiB, node 1: 500.0 MiB``, from KiB."""
    return ", ".join(f"node {node}: {mib(kib)}" for node, kib in sorted(per_node.items())) or "nowhere"


def affinities(masks: Iterable[CpuSet], shown: int | None = None, *, always_counted: bool = False) -> str:
    """``0-31`` where all threads have the same mask, else each mask with its number of threads, the commonest first, at
    most ``shown``; ``-`` for no thread. ``always_counted``: one mask is counted, too."""
    counts = Counter(masks)
    if not counts or (len(counts) == 1 and not always_counted):
        return str(next(iter(counts), "-")) or "-"
    named = [f"{cpus} ({counted(count, 'thread')})" for cpus, count in counts.most_common(shown)]
    more = len(counts) - len(named)
    return "; ".join(named) + (f"; {more} more" if more else "")


def pins_text(pins: Iterable[PartPin]) -> str:
    """``emulator: 0-1; vcpu 0-15: 4-31``; ``-`` for none."""
    parts: dict[tuple[str, CpuSet], list[int]] = {}
    for pin in pins:
        parts.setdefault((pin.kind, pin.cpus), []).extend([] if pin.part is None else [pin.part])
    named = (f"{kind}{f' {ranges(numbers)}' if numbers else ''}: {cpus}" for (kind, cpus), numbers in parts.items())
    return "; ".join(named) or "-"


NO_CPU = "none"
"""RPS that is off."""


def before_and_after(change: Change, *, always_counted: bool = False) -> tuple[str, str]:
    match change:
        case AffinityChange():
            masks = (mask.cpus for mask in change.before)
            return affinities(masks, always_counted=always_counted), str(change.after)
        case StateChange():
            return str(change.before) or NO_CPU, str(change.after) or NO_CPU
        case MemoryChange():
            return memory_by_node(change.before), f"node {change.node}"
        case MetadataChange():
            return pins_text(change.live), pins_text(overlaid(change.live, change.pins))
    assert_never(change)
