"""How busy the machine is before the demo starts anything: on a busy one, no plan for the demo's guests can help."""

import os
import time
from pathlib import Path

_BUSY = 0.25
"""The part of the machine's CPU time from which other programs disturb the guests wherever these are placed: the demo
uses all CPUs, so the plan cannot give the guests CPUs that the others leave alone."""


def other_load(seconds: float, stat: Path = Path("/proc/stat")) -> float:
    """How many CPUs all programs of the machine use now, as a number of CPUs (proc_stat(5)); guests of this host and
    time that a hypervisor takes (steal) count."""
    first = _times(stat)
    time.sleep(seconds)
    return load(first, _times(stat), os.cpu_count() or 1)


def load(first: tuple[int, int], last: tuple[int, int], cpus: int) -> float:
    """The number of busy CPUs between two readings of (busy time, all time)."""
    busy, total = (after - before for before, after in zip(first, last, strict=True))
    return cpus * busy / total if total else 0.0


def too_busy(used: float, cpus: int) -> str:
    """Why a plan cannot help on a machine of which other programs use so many CPUs; empty if it can."""
    if used < _BUSY * cpus:
        return ""
    return (
        f"This machine is too busy for the demo: other programs use {used:.1f} of its {cpus} CPUs. They disturb the\n"
        "demo's guests on every CPU, and a plan for these guests does not move other programs: it could make the\n"
        "guests slower. Repeat `make demo` when the machine is idle, or see all steps now: make demo ARGS=--all"
    )


def _times(stat: Path) -> tuple[int, int]:
    """The busy time and all time of all CPUs together, in ticks. The guests' time is part of the user time."""
    user, nice, system, idle, waiting, *more = map(int, stat.read_text().splitlines()[0].split()[1:9])
    busy = user + nice + system + sum(more)
    return busy, busy + idle + waiting
