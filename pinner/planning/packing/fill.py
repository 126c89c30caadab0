"""The guests that fill a number of CPUs best. Pure."""

from functools import lru_cache

Counts = tuple[tuple[int, int], ...]
"""Sizes, descending, each with the number of guests of this size."""


@lru_cache(maxsize=4096)
def fullest(free: int, counts: Counts) -> tuple[tuple[int, int], ...]:
    """Sizes with numbers of guests whose sum is as near below ``free`` as possible; of equal sums the one with the most
    guests of the largest size."""
    # reachable[i]: the sums, as bits, of guests of the sizes from position i on.
    reachable = [1] * (len(counts) + 1)
    for position in range(len(counts) - 1, -1, -1):
        size, number = counts[position]
        reachable[position] = _with(reachable[position + 1], size, number, free)
    left = reachable[0].bit_length() - 1
    found = []
    for position, (size, number) in enumerate(counts):
        most = min(number, left // size)
        used = next(n for n in range(most, -1, -1) if reachable[position + 1] >> (left - n * size) & 1)
        if used:
            found.append((size, used))
            left -= used * size
    return tuple(found)


def _with(sums: int, size: int, number: int, free: int) -> int:
    """The sums with up to ``number`` further guests of this size, none above ``free``."""
    within, step = (1 << free + 1) - 1, 1
    while number > 0:
        # Doubled steps reach every number of guests.
        now = min(step, number)
        sums |= sums << now * size & within
        number, step = number - now, 2 * step
    return sums & within
