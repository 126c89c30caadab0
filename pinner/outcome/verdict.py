"""The verdict of a probe: an exact randomization test of each measure over the windows that count, for each two
placements.

The order of the windows was drawn at random. If the placement changed nothing, each window would have had the same
value in each order, whatever the noise. So the drawn order is compared with the others, within blocks if it was drawn
in blocks. The windows of other placements stay where they are.

Under a shift d of each "planned" value, an order w has at least the difference of the drawn order exactly if d is at
least r(w) = (A(drawn) - A(w)) / (1 - B(w)), where A(w) is the difference of the mean values and B(w) that of the mean
memberships in the drawn "planned" windows. The sorted r(w) give p-value, estimate and interval at once (Hodges and
Lehmann 1963).
"""

import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations, islice, product
from math import ceil, comb, inf, isinf, prod, sqrt
from statistics import fmean, median

from pinner.model.outcome.outcome import (
    CARRIED,
    CURRENT,
    MEASURES,
    PINGS,
    PLANNED,
    Arm,
    Judgement,
    Measure,
    MeasureOutcome,
    Outcome,
    Pair,
    Window,
)

MOST_ORDERS = 5_000
"""All orders of up to 7 windows of each placement. A sample of this size of more orders, with the drawn one in it,
keeps the test exact (Phipson and Smyth 2010). Many tests need a larger one."""

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


def least_p(windows: int, block: int = 0) -> float:
    """``block`` are the windows of each placement in a block; 0: there is one block."""
    size = block or windows
    return 2 / prod([comb(2 * size, size)] * (windows // size))


def shift(
    values: Sequence[float], planned: Sequence[bool], blocks: Sequence[int] = (), most: int = MOST_ORDERS
) -> Shift:
    """``blocks`` has the block of each value; empty: there is one. ``most`` is the size of a sample of orders."""
    drawn = frozenset(index for index, is_planned in enumerate(planned) if is_planned)
    total, size, count = sum(values), len(drawn), len(values)

    def difference(order: frozenset[int]) -> float:
        part = sum(values[index] for index in order)
        return part / size - (total - part) / (count - size)

    observed = difference(drawn)
    shifts = []
    for order in _orders(blocks or [0] * count, drawn, most):
        kept = len(order & drawn)
        membership = kept / size - (size - kept) / (count - size)
        shifts.append((observed - difference(order)) / (1 - membership))
    return Shift(tuple(sorted(shifts)))


def shift_beside(
    values: Sequence[float],
    control: Sequence[float],
    planned: Sequence[bool],
    blocks: Sequence[int] = (),
    most: int = MOST_ORDERS,
) -> Shift:
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
        return shift(values, planned, blocks, most)
    drawn = frozenset(index for index, is_planned in enumerate(planned) if is_planned)
    residuals = _residuals(values, centred, spread)
    own = _residuals([float(is_planned) for is_planned in planned], centred, spread)
    free = len(drawn) * (len(values) - len(drawn)) / len(values)

    def score(order: frozenset[int], of: Sequence[float]) -> float:
        residual = free - sum(centred[index] for index in order) ** 2 / spread
        return sum(of[index] for index in order) / sqrt(residual) if residual > _ROUNDING * free else 0.0

    observed, steepest = score(drawn, residuals), score(drawn, own)
    smallest = _ROUNDING * max(abs(value) for value in residuals) * len(values)
    shifts, equal = [], 0
    for order in _orders(blocks or [0] * len(values), drawn, most):
        difference, slope = observed - score(order, residuals), steepest - score(order, own)
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


def _orders(blocks: Sequence[int], drawn: frozenset[int], most: int) -> Iterator[frozenset[int]]:
    groups = tuple(
        tuple(index for index, other in enumerate(blocks) if other == block) for block in dict.fromkeys(blocks)
    )
    sizes = tuple(len(drawn.intersection(group)) for group in groups)
    if prod(map(comb, map(len, groups), sizes)) <= most:
        parts = product(*map(combinations, groups, sizes))
        yield from (order for part in parts if (order := frozenset(chain.from_iterable(part))) != drawn)
        return
    yield from islice((order for order in _sampled(groups, sizes, most) if order != drawn), most - 1)


@lru_cache(maxsize=1)  # a verdict asks for the same orders for each measure
def _sampled(groups: tuple[tuple[int, ...], ...], sizes: tuple[int, ...], most: int) -> tuple[frozenset[int], ...]:
    source = random.Random(SEED)  # noqa: S311 - no secret depends on it
    sampled: dict[frozenset[int], None] = {}
    while len(sampled) < most:
        sampled[frozenset(chain.from_iterable(map(source.sample, groups, sizes)))] = None
    return tuple(sampled)


PROBED = (CURRENT, PLANNED)


def schedule(windows: int, seed: int, arms: Sequence[Arm] = PROBED, block: int = 0) -> tuple[Arm, ...]:
    """All orders of a block are equally likely, as the exact test needs: another order could follow a rhythm of the
    load. ``block`` are the windows of each placement in a block; 0: there is one block."""
    source = random.Random(seed)  # noqa: S311 - no secret depends on it
    size, order = block or windows, list[Arm]()
    for _ in range(windows // size):
        part = [arm for arm in arms for _ in range(size)]
        source.shuffle(part)
        order += part
    return tuple(order)


ALPHA = 0.05
"""The share of tests without a difference that say better or worse, over all measures together."""
MOST_WINDOWS = 200
"""More missing windows are not worth naming."""


def outcome(windows: Sequence[Window]) -> Outcome:
    return judge(*complete(windows))


def complete(windows: Sequence[Window]) -> tuple[list[Window], Sequence[Measure]]:
    """The measures to judge: those that half the windows know; a window without one of them does not count. Pings are
    judged only where all windows know them: a guest that begins to filter them must not cost the others windows."""
    counted = [window for window in windows if not window.void]
    names = _names([window.values.keys() for window in counted])
    control = _names([window.control.keys() for window in counted])

    def checked(window: Window) -> Window:
        missing = sorted({*(names - window.values.keys()), *(control - window.control.keys())})
        return replace(window, void=f"not known in all steps: {', '.join(missing)}") if missing else window

    known = [window if window.void else checked(window) for window in windows]
    return known, [measure for measure in MEASURES if measure.name in names] or MEASURES


def _names(known: Sequence[Set[str]]) -> set[str]:
    pings = {measure.name for measure in PINGS}
    some = {name for names in known for name in names}
    counts = {name: sum(name in names for names in known) for name in some}
    return {name for name in some if counts[name] >= len(known) / (1 if name in pings else 2)}


def windows_needed(tests: int, block: int = 0) -> int:
    """For each placement: with fewer, so many tests (measures of pairs) cannot find any difference."""
    count = block or 1
    while least_p(count, block) > ALPHA / tests:
        count += block or 1
    return count


def judge(windows: Sequence[Window], measures: Sequence[Measure]) -> Outcome:
    """Of a probe. The order of the placements must have been drawn by ``schedule``."""
    (pair,) = compare(windows, measures)
    return pair.outcome


def compare(
    windows: Sequence[Window], measures: Sequence[Measure], arms: Sequence[Arm] = PROBED, block: int = 0
) -> tuple[Pair, ...]:
    """Each two placements. The order of all windows must have been drawn by ``schedule`` with these arms and blocks."""
    length = len(arms) * block or len(windows)
    counted = [(window, index // length) for index, window in enumerate(windows) if not window.void]
    void = tuple(window.void for window in windows if window.void)
    contests = [_contest(pair, counted) for pair in combinations(arms, 2)]
    needed = windows_needed(len(contests) * len(measures), block)
    tests = [(contest, measure) for contest in contests if contest.least for measure in measures]
    results: dict[tuple[Arm, Arm], list[MeasureOutcome]] = {contest.arms: [] for contest in contests}
    for (contest, _), result in zip(tests, _tested(tests), strict=True):
        results[contest.arms].append(result)
    return tuple(Pair(*contest.arms, _outcome(contest, results[contest.arms], void, needed)) for contest in contests)


@dataclass(frozen=True, slots=True)
class _Contest:
    """Two placements, with their windows that count."""

    arms: tuple[Arm, Arm]
    windows: tuple[Window, ...]
    blocks: tuple[int, ...]

    @property
    def is_second(self) -> list[bool]:
        return [window.arm == self.arms[1] for window in self.windows]

    @property
    def least(self) -> int:
        """The number of windows of the placement that has fewer."""
        return min(sum(self.is_second), len(self.windows) - sum(self.is_second))


def _contest(arms: tuple[Arm, Arm], counted: Sequence[tuple[Window, int]]) -> _Contest:
    own = [(window, block) for window, block in counted if window.arm in arms]
    return _Contest(arms, tuple(window for window, _ in own), tuple(block for _, block in own))


def _outcome(contest: _Contest, measured: Sequence[MeasureOutcome], void: tuple[str, ...], needed: int) -> Outcome:
    if not measured:
        return Outcome("inconclusive", (), len(contest.windows), void, needed)
    results = _as_carried(measured, contest)
    judgement = _together([result.judgement for result in results])
    missing = _missing(results, contest.least, needed) if judgement == "inconclusive" else 0
    return Outcome(judgement, results, len(contest.windows), void, missing)


def _tested(tests: Sequence[tuple[_Contest, Measure]]) -> list[MeasureOutcome]:
    """All together."""
    most = max(MOST_ORDERS, int(2 * len(tests) / ALPHA) + 1)
    shifts = [_shift(contest, measure, most) for contest, measure in tests]
    corrected = holm([two_sided(each.p()) for each in shifts])
    return [
        _measured(measure, contest, difference, p)
        for (contest, measure), difference, p in zip(tests, shifts, corrected, strict=True)
    ]


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Holm's correction (1979)."""
    corrected = [0.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda index: ps[index])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = highest
    return tuple(corrected)


def _shift(contest: _Contest, measure: Measure, most: int) -> Shift:
    windows, placed = contest.windows, (contest.is_second, contest.blocks, most)
    values = [window.values[measure.name] for window in windows]
    if all(measure.name in window.control for window in windows):
        return shift_beside(values, [window.control[measure.name] for window in windows], *placed)
    return shift(values, *placed)


def _measured(measure: Measure, contest: _Contest, difference: Shift, p: float) -> MeasureOutcome:
    first, second = (
        fmean(window.values[measure.name] for window in contest.windows if window.arm == arm) for arm in contest.arms
    )
    low, high = (None if isinf(end) else end for end in difference.interval(ALPHA))
    return MeasureOutcome(
        measure, first, second, difference.estimate, low, high, p, _judgement(measure, first, second, difference, p)
    )


def _as_carried(results: Sequence[MeasureOutcome], contest: _Contest) -> tuple[MeasureOutcome, ...]:
    """Fewer packets of one placement do not matter where its bits are not fewer, of all guests together and of each."""
    named = {result.measure.name: result for result in results}

    def carry_as_much(packets: MeasureOutcome) -> bool:
        bits = named.get(CARRIED.get(packets.measure.name, ""))
        if bits is None or packets.judgement not in ("better", "worse"):
            return False
        harmed = packets.judgement
        unharmed = bits.judgement not in (harmed, "inconclusive")
        return unharmed and all(guest.judgement != harmed for guest in _of_guests(bits.measure, contest))

    return tuple(replace(result, judgement="no matter") if carry_as_much(result) else result for result in results)


def _of_guests(bits: Measure, contest: _Contest) -> list[MeasureOutcome]:
    known = [window.bits.get(bits.name, {}) for window in contest.windows]

    def of_guest(guest: str) -> _Contest:
        each = zip(contest.windows, known, strict=True)
        return replace(contest, windows=tuple(replace(window, values={bits.name: of[guest]}) for window, of in each))

    return _tested([(of_guest(guest), bits) for guest in sorted(set.intersection(*map(set, known)))])


def _judgement(measure: Measure, first: float, second: float, difference: Shift, p: float) -> Judgement:
    """A difference inside the margin does not matter, however certain: 999 in place of 998 ms/s of pressure could else
    make a plan worse that ends all drops."""
    # Two one-sided tests: the difference is above -margin, and below margin.
    margin = measure.margin_beside(first, second)
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


def _missing(results: Sequence[MeasureOutcome], least: int, needed: int) -> int:
    """An estimate: an interval shrinks with the root of the number of windows, and must become shorter than the effect
    or the margin."""
    for result in results:
        if result.judgement != "inconclusive" or result.low is None or result.high is None:
            continue
        half = (result.high - result.low) / 2
        target = max(abs(result.effect), result.measure.margin_beside(result.current, result.planned))
        needed = max(needed, ceil(least * (half / target) ** 2) if target else MOST_WINDOWS)
    return min(MOST_WINDOWS, max(1, needed - least))
