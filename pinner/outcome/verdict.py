"""The verdict of a probe: the test of each measure over the windows that count, and what all of them say together."""

from collections.abc import Sequence, Set
from dataclasses import replace
from math import ceil, isinf
from statistics import fmean

from pinner.model.outcome.outcome import (
    MEASURES,
    PINGS,
    Judgement,
    Measure,
    MeasureOutcome,
    Outcome,
    Window,
)
from pinner.outcome.randomization import Shift, least_p, shift, shift_beside, two_sided

ALPHA = 0.05
"""The share of tests without a difference that say better or worse, over all measures together."""
MOST_WINDOWS = 200
"""More missing windows are not worth naming."""


def outcome(windows: Sequence[Window]) -> Outcome:
    """A measure that no window knows is not judged; a window that does not know a measure which another one knows does
    not count. Pings are judged only where all windows know them: a guest that begins to filter them must not cost the
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
    """Each window needs a value of these measures."""
    pings = {measure.name for measure in PINGS}
    some = {name for names in known for name in names}
    return {name for name in some if name not in pings or all(name in names for names in known)}


def windows_needed(measures: int) -> int:
    """The number for each placement: with fewer, ``measures`` measures cannot be told apart at all."""
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
    results = tuple(
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
        measure, current, planned, difference.estimate, low, high, p, _judgement(measure, difference, p)
    )


def _judgement(measure: Measure, difference: Shift, p: float) -> Judgement:
    """However certain, a difference inside the margin does not matter: pressure of 999 in place of 998 ms/s could else
    make a plan worse that ends all drops."""
    # Two one-sided tests: the difference is above -margin, and below margin.
    if difference.p(-measure.margin)[0] <= ALPHA and difference.p(measure.margin)[1] <= ALPHA:
        return "no matter"
    if p <= ALPHA:
        return "better" if difference.estimate < 0 else "worse"
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
