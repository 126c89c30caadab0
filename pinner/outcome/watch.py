"""The guard of a watched run: it looks at the measures again and again, and may stop the run at any look.

The guard compares stretches of time that are as long as the watch. So it does not matter how the steps in a stretch
depend on each other. The level of a stretch is the highest value that IN_A_ROW steps in a row reach. A run is worse if
the level of the watch passes a mark. The mark follows from the steps before the run alone, so more looks do not make a
false stop more likely.

If the run changes nothing, the watch is one of n + 1 stretches, and its level is the highest one with a probability of
1 / (n + 1). A mark at the highest level before the run would stop too many runs, because n is small. So the mark is f
times as far from the median of the levels: the probability to pass it is at most 1 / ((n + 1) f²), if levels twice as
far from the median are at most a quarter as frequent. The mark is higher still, because a trend may go on.

That says nothing of a load whose bursts are so rare that the time before the run has none: nobody knows how high one
is. If bursts come at random times, a watch has one, and a time WATCH_FOLD times as long before it has none, with a
probability of at most 1 / (e WATCH_FOLD), whatever their rate is. So a measure is watched only if it is known for so
long.
"""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import median

from pinner.model.outcome.outcome import MEASURES, Measure, Sample
from pinner.model.run.journal import WATCH_FOLD

IN_A_ROW = 4
"""So many steps in a row make a level: shorter bursts do not count."""

LEAST_STEPS = 36
"""The fewest steps before the run with which the guard compares: three minutes of steps of 5 s."""

TREND = 4
"""A trend before the run may go on twice as fast: by four times the distance from the median to the highest level, in a
time as long as that before the run."""

_ALWAYS = ("run_delay", "softnet_drops", "pressure")
"""The measures that every guest and host has."""


def least_steps(watched: int) -> int:
    """The fewest known steps before the run for a watch of ``watched`` steps."""
    return max(LEAST_STEPS, WATCH_FOLD * watched)


def worse(
    before: Sequence[Sample], after: Sequence[Sample], steps: float, least: int, alpha: float = 0.05
) -> tuple[Measure, ...]:
    """The measures that became worse; none as long as nothing is certain.

    ``steps`` is the length of the run and its watch. Each measure that is known in the ``least`` number of steps before
    the run may make its share of false stops.
    """
    known = {each: values for each in MEASURES if len(values := _known(before, each)) >= least}
    return tuple(
        each
        for each, values in known.items()
        if max(_levels(_known(after, each)), default=-inf) > mark(values, each.margin, steps, alpha / len(known))
    )


def mark(before: Sequence[float], margin: float, steps: float, alpha: float) -> float:
    """The mark that a level passes in ``steps`` steps with a probability of at most ``alpha``, if nothing changes.

    ``before`` are the values from before the run. A distance below the margin matters to nobody.
    """
    levels, stretches = _levels(before), len(before) / steps
    usual = median(levels)
    distance = max(max(levels) - usual, margin)
    factor = max(1.0, 1 / sqrt(alpha * (stretches + 1)))
    return usual + (factor + TREND / stretches) * distance


def unwatched(before: Sequence[Sample], least: int) -> dict[Measure, int]:
    """The measures of which fewer than ``least`` steps are known before the run, and how many are known.

    A guest may have no tap, and answer no pings: such measures count only if one step is known.
    """
    known = {each: len(_known(before, each)) for each in MEASURES}
    return {each: count for each, count in known.items() if count < least and (count or each.name in _ALWAYS)}


def is_blind(before: Sequence[Sample], least: int) -> bool:
    """Whether no measure can be watched."""
    return all(len(_known(before, each)) < least for each in MEASURES)


def known_steps(before: Sequence[Sample], after: Sequence[Sample], least: int) -> int:
    """So many steps after the run are known of the watched measure that is known most often; fewer than IN_A_ROW have
    no level. A measure that is known too seldom before the run is not watched."""
    watched = [each for each in MEASURES if len(_known(before, each)) >= least]
    return max((len(_known(after, each)) for each in watched), default=0)


def _levels(values: Sequence[float]) -> list[float]:
    return [min(values[begin : begin + IN_A_ROW]) for begin in range(len(values) - IN_A_ROW + 1)]


def _known(steps: Sequence[Sample], measure: Measure) -> list[float]:
    return [each.values[measure.name] for each in steps if measure.name in each.values]
