"""The result of a probe: the verdict on one plan, or the ranking of several."""

from collections.abc import Sequence
from dataclasses import replace

from pinner.model.outcome.outcome import BLOCK, CURRENT, Arm, Place, Probe, Ranking, Window
from pinner.outcome.verdict import compare, complete, outcome


def with_result(probe: Probe) -> Probe:
    if probe.is_tournament:
        return replace(probe, ranking=ranking(probe.windows, probe.arms))
    return replace(probe, outcome=outcome(probe.windows))


def ranking(windows: Sequence[Window], arms: Sequence[Arm]) -> Ranking:
    """``windows`` were drawn by ``schedule`` with these arms, in blocks of BLOCK. Of equal placements the first is
    first."""
    checked, measures = complete(windows)
    pairs = compare(checked, measures, arms, BLOCK)
    won = [(pair.better, pair.first if pair.better == pair.second else pair.second) for pair in pairs if pair.better]
    places = sorted(
        (
            Place(
                1 + sum(loser == arm for _, loser in won), arm, tuple(loser for better, loser in won if better == arm)
            )
            for arm in arms
        ),
        key=lambda place: place.rank,
    )
    winner = next((place.arm for place in places if CURRENT in place.better_than), "")
    void = tuple(window.void for window in checked if window.void)
    return Ranking(tuple(places), pairs, winner, len(checked) - len(void), void)
