"""Made-up series of a measure: noise as hosts have it, without any effect of a placement."""

import math
import random
from collections.abc import Callable

Series = tuple[float, ...]


def autocorrelated(count: int, source: random.Random) -> Series:
    """Noise that remembers 0.8 of its last value."""
    value, values = 0.0, []
    for _ in range(count):
        value = 0.8 * value + source.gauss(0, 1)
        values.append(10 + value)
    return tuple(values)


def daily(count: int, source: random.Random) -> Series:
    """A cycle that the windows cross at a random hour, with noise."""
    begin = source.uniform(0, 2 * math.pi)
    return tuple(10 + 3 * math.sin(begin + index / 2) + source.gauss(0, 0.5) for index in range(count))


def heavy_tailed(count: int, source: random.Random) -> Series:
    """Values of which a few are a hundred times the median (Pareto, exponent 1.1)."""
    return tuple(source.paretovariate(1.1) for _ in range(count))


def rising(count: int, source: random.Random) -> Series:
    """A load that only grows."""
    return tuple(10 + 0.5 * index + source.gauss(0, 0.3) for index in range(count))


KINDS: tuple[Callable[[int, random.Random], Series], ...] = (autocorrelated, daily, heavy_tailed, rising)


def upper_bound(found: int, of: int) -> float:
    """The upper end of the 95 % interval of a share (Clopper and Pearson 1934)."""
    low, high = found / of, 1.0
    for _ in range(60):
        share = (low + high) / 2
        at_most = sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(found + 1))
        low, high = (share, high) if at_most > 0.025 else (low, share)
    return high
