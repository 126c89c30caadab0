"""Series of a measure, recorded and made up: noise as hosts have it, without any effect of a placement."""

import csv
import math
import random
from collections.abc import Callable
from pathlib import Path

Series = tuple[float, ...]
_RECORDED = Path(__file__).parents[2] / "data" / "series"


def busy_host() -> list[tuple[float, float]]:
    """The run delay of a thread that works for a moment twenty times a second, and the pressure of the host, in ms/s.

    They were recorded once a second on a host with two CPUs and changing work.
    """
    return _recorded("busy-host.csv")


def crowded_host() -> list[tuple[float, float]]:
    """The run delay of a libvirtd and the pressure of its host, in ms/s.

    They were recorded in steps of 5 s on a host with two CPUs, on which guests were started and stopped all the time.
    """
    return _recorded("crowded-host.csv")


def jumping_host() -> list[tuple[float, float]]:
    """The run delay of a thread that works for a moment twenty times a second, and the pressure of the host, in ms/s.

    They were recorded in steps of 5 s, for two hours, on a host with two CPUs on which tests that use all CPUs started
    and ended: the load jumps several times.
    """
    return _recorded("jumping-host.csv")


def _recorded(name: str) -> list[tuple[float, float]]:
    with (_RECORDED / name).open(newline="") as lines:
        return [(float(delay), float(pressure)) for delay, pressure in csv.reader(lines)]


def autocorrelated(count: int, source: random.Random) -> Series:
    """Noise that remembers 0.8 of its last value."""
    value, values = 0.0, []
    for _ in range(count):
        value = 0.8 * value + source.gauss(0, 1)
        values.append(10 + value)
    return tuple(values)


def remembering(memory: float, count: int, source: random.Random) -> Series:
    """Noise around 100 with a deviation of 20, of which the part ``memory`` remains in the next value."""
    rest, values = source.gauss(0, 20), []
    for _ in range(count):
        rest = memory * rest + math.sqrt(1 - memory * memory) * source.gauss(0, 20)
        values.append(100 + rest)
    return tuple(values)


def skewed(memory: float, count: int, source: random.Random) -> Series:
    """Noise whose values are often half of the median or twice as large, and remember the part ``memory``."""
    return tuple(100 * math.exp((value - 100) / 25) for value in remembering(memory, count, source))


def skewed_more(count: int, source: random.Random) -> Series:
    """Noise around 100 whose logarithm has a deviation of 0.7 and remembers 0.95 of its last value."""
    return tuple(100 * math.exp(0.035 * (value - 100)) for value in remembering(0.95, count, source))


def wandering(count: int, source: random.Random) -> Series:
    """A load that never returns to a mean."""
    value, values = 1000.0, []
    for _ in range(count):
        value = max(0.0, value + source.gauss(0, 10))
        values.append(value)
    return tuple(values)


def bursts(count: int, source: random.Random) -> Series:
    """Packets that are dropped for 5 to 15 s, once in five minutes."""
    values = [0.0] * count
    for begin in range(count):
        if source.random() < 1 / 60:
            for index in range(begin, min(begin + source.randint(1, 3), count)):
                values[index] += 10 * source.paretovariate(1)
    return tuple(values)


def on_and_off(on: float, off: float, count: int, source: random.Random) -> Series:
    """A load that comes and goes at random times: it lasts ``on`` seconds on average, and ``off`` is between two."""
    at, is_on, loads = 0.0, source.random() < on / (on + off), []
    while at < 5 * count:
        length = source.expovariate(1 / (on if is_on else off))
        if is_on:
            loads.append((at, at + length, 300.0))
        at, is_on = at + length, not is_on
    return _steps(loads, count, source)


def high_bursts(every: float, count: int, source: random.Random) -> Series:
    """Bursts at random times, one in ``every`` seconds, of 30 s on average. A few are very high (Pareto, 1.5)."""
    at, loads = -300.0 + source.expovariate(1 / every), []
    while at < 5 * count:
        loads.append((at, at + source.expovariate(1 / 30), 50 * source.paretovariate(1.5)))
        at += source.expovariate(1 / every)
    return _steps(loads, count, source)


def _steps(loads: list[tuple[float, float, float]], count: int, source: random.Random) -> Series:
    """The means of steps of 5 s under these loads (begin, end, height), above a quiet host."""
    values = [20 + abs(source.gauss(0, 3)) for _ in range(count)]
    for begin, end, height in loads:
        for index in range(max(0, int(begin // 5)), min(count, int(end // 5) + 1)):
            values[index] += height * max(0.0, min(end, 5 * index + 5) - max(begin, 5 * index)) / 5
    return tuple(values)


def daily(count: int, source: random.Random) -> Series:
    """A cycle that the windows cross at a random hour, with noise."""
    begin = source.uniform(0, 2 * math.pi)
    return tuple(10 + 3 * math.sin(begin + index / 2) + source.gauss(0, 0.5) for index in range(count))


def cyclic(count: int, source: random.Random) -> Series:
    """A cycle of two minutes to two hours that the windows cross at a random moment, with noise."""
    begin, period = source.uniform(0, 2 * math.pi), 24 * 60 ** source.random()
    values = (math.sin(begin + 2 * math.pi * index / period) for index in range(count))
    return tuple(200 + 60 * value + source.gauss(0, 10) for value in values)


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


def most_wrong(of: int) -> int:
    """The most false verdicts of so many probes: at the exact level of 5 %, more have a probability below 1 in 100."""
    at_most, count = 0.0, -1
    while at_most < 0.99:
        count += 1
        at_most += math.comb(of, count) * 0.05**count * 0.95 ** (of - count)
    return count
