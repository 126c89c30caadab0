"""The verdict of a probe: the test of each measure, and what all of them say together."""

from collections.abc import Sequence
from math import ceil, isinf
from statistics import fmean

from pinner.model.outcome.outcome import Judgement, Measure, MeasureOutcome, Outcome, Window
from pinner.outcome.randomization import Shift, least_p, shift, shift_beside, two_sided

ALPHA = 0.05
"""The share of tests without a difference that say better or worse, over all measures together."""

MOST_WINDOWS = 200
"""More missing windows are not worth naming."""


def windows_needed(measures: int) -> int:
    """Of each placement: with fewer, ``measures`` measures cannot be told apart at all."""
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
    corrected = holm([two_sided(each.p()) for each in shifts])
    results = tuple(
        _measured(measure, counted, found, p) for measure, found, p in zip(measures, shifts, corrected, strict=True)
    )
    judgement = _together([result.judgement for result in results])
    missing = _missing(results, least) if judgement == "inconclusive" else 0
    return Outcome(judgement, results, len(counted), void, missing)


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """P-values after Holm's correction (1979)."""
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


def _measured(measure: Measure, windows: Sequence[Window], found: Shift, p: float) -> MeasureOutcome:
    current, planned = (
        fmean(window.values[measure.name] for window in windows if window.arm == arm) for arm in ("current", "planned")
    )
    low, high = (None if isinf(end) else end for end in found.interval(ALPHA))
    return MeasureOutcome(measure, current, planned, found.estimate, low, high, p, _judgement(measure, found, p))


def _judgement(measure: Measure, found: Shift, p: float) -> Judgement:
    """However certain, a difference inside the margin does not matter: pressure of 999 in place of 998 ms/s could else
    make a plan worse that ends all drops."""
    # Two one-sided tests: the difference is above -margin, and below margin.
    if found.p(-measure.margin)[0] <= ALPHA and found.p(measure.margin)[1] <= ALPHA:
        return "no matter"
    if p <= ALPHA:
        return "better" if found.estimate < 0 else "worse"
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
        target = max(abs(result.effect), result.measure.margin)
        needed = max(needed, ceil(least * (half / target) ** 2) if target else MOST_WINDOWS)
    return min(MOST_WINDOWS, max(1, needed - least))
