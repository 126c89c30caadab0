"""Moves a target's misplaced threads until there are none."""

from collections.abc import Callable

from pinner.model.change import ThreadMask

PASSES = 10


def converge(
    misplaced: Callable[[], list[ThreadMask]], move: Callable[[list[ThreadMask]], None]
) -> tuple[ThreadMask, ...]:
    """Returns those misplaced after the last pass. After a pass with misplaced threads, two readings in a row must find
    none: a misplaced thread can create another, which only the next reading shows."""
    needed = 1
    remaining: list[ThreadMask] = []
    for _ in range(PASSES):
        remaining = misplaced()
        if remaining:
            move(remaining)
            needed = 2
        else:
            needed -= 1
        if not needed:
            break
    return tuple(remaining)
