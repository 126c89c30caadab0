"""The guard of a watched run: it looks at the measures again and again, and may stop the run at any look.

A stretch of time is as long as the watch, and its level is the highest value that IN_A_ROW steps in a row reach. A run
is worse if the level of the watch passes a mark, which follows from the steps before the run alone. docs/measures.md
("What a watch promises") says how often a run without effect is stopped, and on which assumptions.
"""

from collections.abc import Collection, Sequence
from math import inf, sqrt
from statistics import fmean, median

from pinner.model.outcome.measures import ROWS
from pinner.model.outcome.outcome import CARRIED, CORE, MEASURES, PINGS, TRAFFIC, Measure, Sample
from pinner.model.run.journal import WATCH_FOLD

IN_A_ROW = 4
"""Shorter bursts do not count."""

LEAST_STEPS = 36
"""Before the run: three minutes of steps of 5 s."""

TREND = 4
"""A trend before the run may go on twice as fast: by four times the distance from the median to the highest level, in
the same time."""

_ALWAYS = ("run_delay", "softnet_drops", "pressure")

_FAMILIES = (*((measure,) for measure in CORE), TRAFFIC, PINGS)
"""Each has its share of false stops: measures of one cause would else hide what the others show."""


def least_steps(watched: int) -> int:
    """So many steps before the run must be known."""
    return max(LEAST_STEPS, WATCH_FOLD * watched)


def worse(
    before: Sequence[Sample], after: Sequence[Sample], steps: float, least: int, alpha: float = 0.05
) -> tuple[Measure, ...]:
    """None as long as nothing is certain.

    ``steps`` is the length of the run and its watch. Each measure that is known in ``least`` steps before the run may
    make its share of false stops. Of a measure that is better when it is higher, the negative values are compared.
    """
    near = [measure for measure in MEASURES if measure.reach_seconds <= max(0.0, steps - IN_A_ROW) * min(ROWS)]
    known = {measure: values for measure in near if len(values := _known(before, measure)) >= least}
    shares = _shares(known.keys())

    def is_worse(measure: Measure, earlier: Sequence[float], later: Sequence[float], share: float) -> bool:
        limit = mark(earlier, measure.margin_beside(median(earlier)), steps, alpha * share)
        return max(_levels(later), default=-inf) > limit

    def carry_as_much(packets: Measure) -> bool:
        """Of all guests together, and of each that is known long enough."""
        bits = next((bits for bits in TRAFFIC if bits.name == CARRIED.get(packets.name)), None)
        if bits is None or not _is_as_much(_known(before, bits), _known(after, bits), bits):
            return False
        guests = {guest for sample in after for guest in sample.bits.get(bits.name, ())}
        sides = [(_of_guest(before, bits, guest), _of_guest(after, bits, guest)) for guest in guests]
        return not any(
            is_worse(bits, earlier, later, shares[packets]) for earlier, later in sides if len(earlier) >= least
        )

    return tuple(
        measure
        for measure, earlier in known.items()
        if is_worse(measure, earlier, _known(after, measure), shares[measure]) and not carry_as_much(measure)
    )


def _shares(known: Collection[Measure]) -> dict[Measure, float]:
    families = [members for family in _FAMILIES if (members := [measure for measure in family if measure in known])]
    return {measure: 1 / len(families) / len(members) for members in families for measure in members}


def _is_as_much(earlier: Sequence[float], later: Sequence[float], bits: Measure) -> bool:
    return bool(earlier and later) and fmean(later) <= median(earlier) + bits.margin_beside(median(earlier))


def mark(before: Sequence[float], margin: float, steps: float, alpha: float) -> float:
    """Without a change, a level passes it in ``steps`` steps with a probability of at most ``alpha``. A distance below
    the margin matters to nobody."""
    levels, stretches = _levels(before), len(before) / steps
    usual = median(levels)
    distance = max(max(levels) - usual, margin)
    factor = max(1.0, 1 / sqrt(alpha * (stretches + 1)))
    return usual + (factor + TREND / stretches) * distance


def unwatched(before: Sequence[Sample], least: int) -> dict[Measure, int]:
    """Measures with fewer than ``least`` known steps before the run, and that number. One without any does not count
    for a guest without a tap, or that answers no pings."""
    known = {measure: len(_known(before, measure)) for measure in MEASURES}
    return {measure: count for measure, count in known.items() if count < least and (count or measure.name in _ALWAYS)}


def is_blind(before: Sequence[Sample], least: int) -> bool:
    return all(len(_known(before, measure)) < least for measure in MEASURES)


def known_steps(before: Sequence[Sample], after: Sequence[Sample], least: int) -> int:
    """Of the watched measure that is known most often; fewer than IN_A_ROW have no level."""
    watched = [measure for measure in MEASURES if len(_known(before, measure)) >= least]
    return max((len(_known(after, measure)) for measure in watched), default=0)


def _levels(values: Sequence[float]) -> list[float]:
    return [min(values[begin : begin + IN_A_ROW]) for begin in range(len(values) - IN_A_ROW + 1)]


def _known(steps: Sequence[Sample], measure: Measure) -> list[float]:
    """A higher one is worse."""
    return [measure.sign * sample.values[measure.name] for sample in steps if measure.name in sample.values]


def _of_guest(steps: Sequence[Sample], bits: Measure, guest: str) -> list[float]:
    """A higher one is worse."""
    known = (sample.bits.get(bits.name, {}) for sample in steps)
    return [bits.sign * of[guest] for of in known if guest in of]
