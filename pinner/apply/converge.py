"""Moving a target's misplaced threads until there are none: one pass misses threads that are born meanwhile."""

from collections.abc import Callable

from pinner.model.change import ThreadMask

PASSES = 10


def converge(
    misplaced: Callable[[], list[ThreadMask]], move: Callable[[list[ThreadMask]], None]
) -> tuple[ThreadMask, ...]:
    """Read the misplaced threads and move them, until there are none; return those that are left after ten passes.

    Once there was one, two readings in a row must find none: while the threads are listed, a misplaced thread can
    create another and end before the list comes to it, and only the next list shows the new one.
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
