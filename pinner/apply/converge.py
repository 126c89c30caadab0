"""Reading a target again until no thread of it is astray: one pass misses what is born meanwhile."""

from collections.abc import Callable

from pinner.model.change import ThreadMask

PASSES = 10


def converge(
    misplaced: Callable[[], list[ThreadMask]], move: Callable[[list[ThreadMask]], None]
) -> tuple[ThreadMask, ...]:
    """Read the strays and move them, until there are none; those that are left after ten passes.

    Once there was one, two readings in a row must find none: while the threads are listed a stray can bear another and
    end before its turn, and only the next list shows that one.
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
