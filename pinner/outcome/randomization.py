"""The exact randomization test of a difference between two placements.

The order of the windows was drawn at random, so each other order was as probable. If the placement changed nothing,
each window would have had the same value in each order, whatever the noise looks like: autocorrelated, daily,
heavy-tailed. The test compares the drawn order with the others.

A placement may add a shift to each value. Under a shift d, an order w has at least the difference of the drawn order
exactly if d is at least r(w) = (A(drawn) - A(w)) / (1 - B(w)), where A(w) is the difference of the mean values and B(w)
the difference of the mean memberships in the drawn "planned" windows. So the sorted r(w) give p-value, estimate and
interval at once (inversion of the test; Hodges and Lehmann 1963).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, inf
from statistics import fmean, median

MOST_ORDERS = 5_000
"""Up to this number, all orders are compared: up to 7 windows of each placement. Of more orders, a sample of this size
with the drawn one in it is compared, which keeps the test exact (Phipson and Smyth 2010)."""

SEED = 20_260
"""The seed of that sample: the same windows give the same verdict."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The shift that the planned placement adds to the values."""

    shifts: tuple[float, ...]
    """r(w) of the orders other than the drawn one, ascending."""

    @property
    def estimate(self) -> float:
        """The median of the shifts."""
        return median(self.shifts)

    def p(self, margin: float = 0.0) -> tuple[float, float]:
        """The one-sided p-values: against "the shift is at most ``margin``", and against "at least ``margin``"."""
        orders = len(self.shifts) + 1
        above = 1 + sum(shift <= margin for shift in self.shifts)
        below = 1 + sum(shift >= margin for shift in self.shifts)
        return above / orders, below / orders

    def interval(self, alpha: float) -> tuple[float, float]:
        """The shifts that a two-sided test at ``alpha`` does not refuse. An end that the windows do not bound is
        infinite."""
        orders = len(self.shifts) + 1
        refused = int(alpha / 2 * orders + 1e-9)
        if refused < 1:
            return -inf, inf
        return self.shifts[refused - 1], self.shifts[-refused]


def two_sided(p: tuple[float, float]) -> float:
    """The two-sided p-value of two one-sided ones."""
    return min(1.0, 2 * min(p))


def least_p(windows: int) -> float:
    """The smallest two-sided p-value that so many windows of each placement can give."""
    return 2 / comb(2 * windows, windows)


def shift(values: Sequence[float], planned: Sequence[bool]) -> Shift:
    """The shift between the windows with ``planned`` and the others. Both placements have at least one window."""
    drawn = frozenset(index for index, is_planned in enumerate(planned) if is_planned)
    total, size, count = sum(values), len(drawn), len(values)

    def difference(order: frozenset[int]) -> float:
        part = sum(values[index] for index in order)
        return part / size - (total - part) / (count - size)

    observed = difference(drawn)
    shifts = []
    for order in _orders(count, drawn):
        kept = len(order & drawn)
        membership = kept / size - (size - kept) / (count - size)
        shifts.append((observed - difference(order)) / (1 - membership))
    return Shift(tuple(sorted(shifts)))


def without_control(values: Sequence[float], control: Sequence[float]) -> tuple[float, ...]:
    """The values without the part that follows the control (linear regression over all windows).

    The regression does not know the placements, so the test of its residuals is as exact as that of the values.
    """
    mean, control_mean = fmean(values), fmean(control)
    spread = sum((each - control_mean) ** 2 for each in control)
    if not spread:
        return tuple(values)
    together = sum((value - mean) * (each - control_mean) for value, each in zip(values, control, strict=True))
    return tuple(value - together / spread * (each - control_mean) for value, each in zip(values, control, strict=True))


def _orders(count: int, drawn: frozenset[int]) -> Iterator[frozenset[int]]:
    """The orders other than the drawn one, or a sample of them."""
    if comb(count, len(drawn)) <= MOST_ORDERS:
        yield from (order for order in map(frozenset, combinations(range(count), len(drawn))) if order != drawn)
        return
    source = random.Random(SEED)  # noqa: S311 - no secret depends on it
    others: set[frozenset[int]] = set()
    while len(others) < MOST_ORDERS - 1:
        others.add(frozenset(source.sample(range(count), len(drawn))))
        others.discard(drawn)
    yield from others
