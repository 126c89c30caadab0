"""The verdict of a probe: an exact randomization test of each measure over the windows that count.

The order of the windows was drawn at random. If the placement changed nothing, each window would have had the same
value in each order, whatever the noise. So the drawn order is compared with the others.

Under a shift d of each "planned" value, an order w has at least the difference of the drawn order exactly if d is at
least r(w) = (A(drawn) - A(w)) / (1 - B(w)), where A(w) is the difference of the mean values and B(w) that of the mean
memberships in the drawn "planned" windows. The sorted r(w) give p-value, estimate and interval at once (Hodges and
Lehmann 1963).
"""

import random
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice
from math import ceil, comb, inf, isinf, sqrt
from statistics import fmean, median

from pinner.model.outcome.outcome import (
    CARRIED,
    MEASURES,
    PINGS,
    Arm,
    Judgement,
    Measure,
    MeasureOutcome,
    Outcome,
    Window,
)

MOST_ORDERS = 5_000
"""All orders of up to 7 windows of each placement. A sample of this size of more orders, with the drawn one in it,
keeps the test exact (Phipson and Smyth 2010)."""

_ROUNDING = 1e-9

SEED = 20_260
"""With one seed the same windows give the same verdict."""


@dataclass(frozen=True, slots=True)
class Shift:
    shifts: tuple[float, ...]
    """The values r(w) in ascending order."""
    equal: int = 0
    """Orders that the control does not tell from the drawn one. They count against each shift."""

    @property
    def estimate(self) -> float:
        """The median; 0 where the control tells no order from the drawn one."""
        return median(self.shifts) if self.shifts else 0.0

    @property
    def _total(self) -> int:
        return len(self.shifts) + self.equal + 1

    def p(self, margin: float = 0.0) -> tuple[float, float]:
        """One-sided: against "the shift is at most ``margin``", and against "at least ``margin``"."""
        rounding = _ROUNDING * abs(margin)
        above = 1 + self.equal + sum(shift <= margin + rounding for shift in self.shifts)
        below = 1 + self.equal + sum(shift >= margin - rounding for shift in self.shifts)
        return above / self._total, below / self._total

    def interval(self, alpha: float) -> tuple[float, float]:
        """Shifts that a two-sided test at ``alpha`` does not refuse. An end that the windows do not bound is
        infinite."""
        refused = int(alpha / 2 * self._total + 1e-9) - self.equal
        if refused < 1:
            return -inf, inf
        return self.shifts[refused - 1], self.shifts[-refused]


def two_sided(p: tuple[float, float]) -> float:
    return min(1.0, 2 * min(p))


def least_p(windows: int) -> float:
    return 2 / comb(2 * windows, windows)


def shift(values: Sequence[float], planned: Sequence[bool]) -> Shift:
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


def shift_beside(values: Sequence[float], control: Sequence[float], planned: Sequence[bool]) -> Shift:
    """Without the part of the shift that follows the control.

    Under a shift d, the values less d in the "planned" windows do not depend on the placements. So their regression on
    the control does not, and the test of its residuals is exact (Rosenbaum 2002, "Covariance adjustment in randomized
    experiments and observational studies"). The values themselves must not be regressed: the control differs between
    the placements by chance, and would take 1 / (windows - 1) of the effect in the mean.

    r(w) = (S(drawn) of the values - S(w) of the values) / (S(drawn) of the drawn order - S(w) of the drawn order),
    where S(w) is the sum of the residuals in w, divided by the length of the residuals of w itself.
    """
    centred = _centred(control)
    spread = sum(value * value for value in centred)
    if spread <= _ROUNDING * sum(value * value for value in control):
        return shift(values, planned)
    drawn = frozenset(index for index, is_planned in enumerate(planned) if is_planned)
    residuals = _residuals(values, centred, spread)
    own = _residuals([float(is_planned) for is_planned in planned], centred, spread)
    free = len(drawn) * (len(values) - len(drawn)) / len(values)

    def score(order: frozenset[int], of: Sequence[float]) -> float:
        residual = free - sum(centred[index] for index in order) ** 2 / spread
        return sum(of[index] for index in order) / sqrt(residual) if residual > _ROUNDING * free else 0.0

    observed, most = score(drawn, residuals), score(drawn, own)
    smallest = _ROUNDING * max(abs(value) for value in residuals) * len(values)
    shifts, equal = [], 0
    for order in _orders(len(values), drawn):
        difference, slope = observed - score(order, residuals), most - score(order, own)
        if slope <= _ROUNDING * sqrt(free):
            equal += 1
        else:
            shifts.append(difference / slope if abs(difference) > smallest else 0.0)
    return Shift(tuple(sorted(shifts)), equal)


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _residuals(values: Sequence[float], centred: Sequence[float], spread: float) -> list[float]:
    """``spread`` is the sum of the squared control."""
    own = _centred(values)
    slope = sum(value * regressor for value, regressor in zip(own, centred, strict=True)) / spread
    return [value - slope * regressor for value, regressor in zip(own, centred, strict=True)]


def _orders(count: int, drawn: frozenset[int]) -> Iterator[frozenset[int]]:
    if comb(count, len(drawn)) <= MOST_ORDERS:
        yield from (order for order in map(frozenset, combinations(range(count), len(drawn))) if order != drawn)
        return
    others = (order for order in _sampled(count, len(drawn)) if order != drawn)
    yield from islice(others, MOST_ORDERS - 1)


@lru_cache(maxsize=1)  # a verdict asks for the same orders for each measure
def _sampled(count: int, size: int) -> tuple[frozenset[int], ...]:
    source = random.Random(SEED)  # noqa: S311 - no secret depends on it
    sampled: dict[frozenset[int], None] = {}
    while len(sampled) < MOST_ORDERS:
        sampled[frozenset(source.sample(range(count), size))] = None
    return tuple(sampled)


def schedule(windows: int, seed: int) -> tuple[Arm, ...]:
    """All orders are equally likely, as the exact test needs: another order could follow a rhythm of the load."""
    arms: list[Arm] = ["current"] * windows
    arms += ["planned"] * windows
    random.Random(seed).shuffle(arms)  # noqa: S311 - no secret depends on it
    return tuple(arms)


ALPHA = 0.05
"""The share of tests without a difference that say better or worse, over all measures together."""
MOST_WINDOWS = 200
"""More missing windows are not worth naming."""


def outcome(windows: Sequence[Window]) -> Outcome:
    """A measure that no window knows is not judged. A window without a measure that another one knows does not count,
    except for pings, judged only where all windows know them: a guest that begins to filter them must not cost the
    other measures their windows."""
    counted = [window for window in windows if not window.void]
    names = _names([window.values.keys() for window in counted])
    control = _names([window.control.keys() for window in counted])

    def complete(window: Window) -> Window:
        missing = sorted({*(names - window.values.keys()), *(control - window.control.keys())})
        return replace(window, void=f"not known in all steps: {', '.join(missing)}") if missing else window

    checked = [window if window.void else complete(window) for window in windows]
    return judge(checked, [measure for measure in MEASURES if measure.name in names] or MEASURES)


def _names(known: Sequence[Set[str]]) -> set[str]:
    pings = {measure.name for measure in PINGS}
    some = {name for names in known for name in names}
    return {name for name in some if name not in pings or all(name in names for names in known)}


def windows_needed(measures: int) -> int:
    """For each placement: with fewer, ``measures`` measures cannot be told apart at all."""
    count = 1
    while least_p(count) > ALPHA / measures:
        count += 1
    return count


def judge(windows: Sequence[Window], measures: Sequence[Measure]) -> Outcome:
    """The order of the placements must have been drawn by ``schedule``."""
    counted = [window for window in windows if not window.void]
    planned = [window.arm == "planned" for window in counted]
    void = tuple(window.void for window in windows if window.void)
    least = min(sum(planned), len(planned) - sum(planned))
    if not least:
        return Outcome("inconclusive", (), len(counted), void, windows_needed(len(measures)))
    shifts = [_shift(counted, measure, planned) for measure in measures]
    corrected = holm([two_sided(one_shift.p()) for one_shift in shifts])
    results = _as_carried(
        _measured(measure, counted, difference, p)
        for measure, difference, p in zip(measures, shifts, corrected, strict=True)
    )
    judgement = _together([result.judgement for result in results])
    missing = _missing(results, least) if judgement == "inconclusive" else 0
    return Outcome(judgement, results, len(counted), void, missing)


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Holm's correction (1979)."""
    corrected = [0.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = highest
    return tuple(corrected)


def _shift(windows: Sequence[Window], measure: Measure, planned: Sequence[bool]) -> Shift:
    values = [window.values[measure.name] for window in windows]
    if all(measure.name in window.control for window in windows):
        return shift_beside(values, [window.control[measure.name] for window in windows], planned)
    return shift(values, planned)


def _measured(measure: Measure, windows: Sequence[Window], difference: Shift, p: float) -> MeasureOutcome:
    current, planned = (
        fmean(window.values[measure.name] for window in windows if window.arm == arm) for arm in ("current", "planned")
    )
    low, high = (None if isinf(end) else end for end in difference.interval(ALPHA))
    return MeasureOutcome(
        measure, current, planned, difference.estimate, low, high, p, _judgement(measure, current, difference, p)
    )


def _as_carried(results: Iterable[MeasureOutcome]) -> tuple[MeasureOutcome, ...]:
    """Fewer packets do not matter where the bits are not fewer."""
    listed = tuple(results)
    unharmed = {result.measure.name for result in listed if result.judgement in ("better", "no matter")}
    return tuple(
        replace(result, judgement="no matter")
        if result.judgement == "worse" and CARRIED.get(result.measure.name) in unharmed
        else result
        for result in listed
    )


def _judgement(measure: Measure, current: float, difference: Shift, p: float) -> Judgement:
    """A difference inside the margin does not matter, however certain: 999 in place of 998 ms/s of pressure could else
    make a plan worse that ends all drops."""
    # Two one-sided tests: the difference is above -margin, and below margin.
    margin = measure.margin_beside(current)
    if difference.p(-margin)[0] <= ALPHA and difference.p(margin)[1] <= ALPHA:
        return "no matter"
    if p <= ALPHA:
        return "better" if difference.estimate * measure.sign < 0 else "worse"
    return "inconclusive"


def _together(judgements: Sequence[Judgement]) -> Judgement:
    for judgement in ("worse", "better", "inconclusive"):
        if judgement in judgements:
            return judgement
    return "no matter"


def _missing(results: Sequence[MeasureOutcome], least: int) -> int:
    """An estimate: an interval shrinks with the root of the number of windows, and must become shorter than the effect
    or the margin."""
    needed = windows_needed(len(results))
    for result in results:
        if result.judgement != "inconclusive" or result.low is None or result.high is None:
            continue
        half = (result.high - result.low) / 2
        target = max(abs(result.effect), result.measure.margin_beside(result.current))
        needed = max(needed, ceil(least * (half / target) ** 2) if target else MOST_WINDOWS)
    return min(MOST_WINDOWS, max(1, needed - least))
