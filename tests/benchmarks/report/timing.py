"""Times of calls, measured in turns, and rows of the table of benchmarks."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.peers.quality import Quality

T = TypeVar("T")
Row = dict[str, str]
"""A line of the table: the text of each column."""
FEWEST, MOST = 3, 9
"""Repetitions."""
BUDGET_SECONDS = 10.0
"""The wall time after which a measurement is not repeated more often than FEWEST."""


@dataclass(frozen=True, slots=True)
class Time:
    """Milliseconds."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{_text(self.cpu)} ms (wall {_text(self.wall)})"


def timed(call: Callable[..., T], *arguments: object, **options: object) -> tuple[Time, T]:
    """The time of one call in this process, and its result."""
    began, cpu = time.perf_counter(), time.process_time()
    answer = call(*arguments, **options)
    return Time((time.process_time() - cpu) * 1000, (time.perf_counter() - began) * 1000), answer


def clear_caches() -> None:
    """Clear what pinner's pure functions keep from earlier calls, because a new process has none of it.

    The strategies and the readers of types stay: a process makes them once, whatever it plans.
    """
    rooms = ("pinner.model.", "pinner.planning.packing.", "pinner.planning.strategies.")
    for module in [module for name, module in sys.modules.items() if name.startswith(rooms)]:
        for value in vars(module).values():
            if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "cache_clear"):
                value.cache_clear()


def in_turns(methods: Mapping[str, Callable[[], Time]]) -> dict[str, Time]:
    """The median time of each method. They run in turns, so that a busy moment of the machine meets all of them."""
    runs: list[list[Time]] = []
    began = time.perf_counter()
    while len(runs) < FEWEST or (len(runs) < MOST and time.perf_counter() - began < BUDGET_SECONDS):
        runs.append([method() for method in methods.values()])
    columns = zip(*runs, strict=True)
    return {name: _median(column) for name, column in zip(methods, columns, strict=True)}


def line(
    what: str,
    ours: Time,
    quality: Quality | None = None,
    *,
    peer: str = "",
    theirs: Time | None = None,
    its_quality: Quality | None = None,
) -> Row:
    """A row: our time and quality beside those of one peer. The ratio is that of the CPU times."""
    row = {"what": what, "ours": str(ours)}
    if quality is not None:
        row["quality"] = str(quality)
    if peer:
        row["peer"] = peer
    if theirs is not None:
        row |= {"theirs": str(theirs), "theirs / ours": f"{theirs.cpu / ours.cpu:.2f}"}
    if its_quality is not None:
        row["their quality"] = str(its_quality)
    return row


def _median(times: tuple[Time, ...]) -> Time:
    return Time(statistics.median(each.cpu for each in times), statistics.median(each.wall for each in times))


def _text(milliseconds: float) -> str:
    return f"{milliseconds:.2f}" if milliseconds < 10 else f"{milliseconds:.1f}"
