"""Moves a target's misplaced threads until there are none. One pass misses threads that are created during the pass."""

from collections.abc import Callable

from pinner.model.change import ThreadMask

PASSES = 10


def converge(
    misplaced: Callable[[], list[ThreadMask]], move: Callable[[list[ThreadMask]], None]
) -> tuple[ThreadMask, ...]:
    """Move the misplaced threads until there are none; returns those that are left after the last pass.

    After a pass with misplaced threads, two readings in a row must find none: during one, a misplaced thread can create
    a new thread, which only the next reading shows.
    """
    needed = 1
    left: list[ThreadMask] = []
    for _ in range(PASSES):
        left = misplaced()
        if left:
            move(left)
            needed = 2
        else:
            needed -= 1
        if not needed:
            break
    return tuple(left)
