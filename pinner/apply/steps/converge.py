"""Moves a target's misplaced threads until there are none. One pass misses threads that are created during the pass."""

from collections.abc import Callable

from pinner.model.change import ThreadMask

PASSES = 10


def converge(
    misplaced: Callable[[], list[ThreadMask]], move: Callable[[list[ThreadMask]], None]
) -> tuple[ThreadMask, ...]:
    """Read the misplaced threads and move them until there are none; return those that are left after the last pass.

    After a pass with misplaced threads, two readings in a row must find none. While one reading lists the threads, a
    misplaced thread can create a new thread and end. Only the next reading shows the new thread.
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
