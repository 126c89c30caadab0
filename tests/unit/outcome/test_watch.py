"""The guard of a placement that is watched."""

import random

import pytest
from support.series import rising
from support.values import NOON

from pinner.model.outcome import MEASURES, Sample
from pinner.outcome.watch import IN_A_ROW, LEAST_STEPS, TREND, is_blind, mark, unwatched, worse

DELAY, DROPS, SOFTNET, PRESSURE, *_ = MEASURES
WATCH = 15
"""The steps of a watch of a minute."""
MARGIN, ALPHA = 5.0, 0.01


def samples(values, measure=DELAY):
    """Steps with these values of the measure; None: it is not known."""
    return [Sample(NOON, {} if value is None else {measure.name: value}, {}) for value in values]


def calm(count):
    return [float(index % 5 + 10) for index in range(count)]


def test_a_large_harm_is_found_after_few_steps():
    before, after = samples(calm(LEAST_STEPS)), samples([500.0] * IN_A_ROW)
    assert worse(before, after, WATCH) == (DELAY,)
    assert worse(before, after[1:], WATCH) == ()


def test_a_moderate_harm_is_found_after_a_long_time_before_the_run():
    after = samples([30.0] * WATCH)
    assert worse(samples(calm(360)), after, WATCH) == (DELAY,)
    assert worse(samples(calm(LEAST_STEPS)), after, WATCH) == ()


def test_a_load_that_only_grows_is_no_harm_and_a_large_harm_is_found_beside_it():
    values = rising(120, random.Random(4))
    before = samples(values[:60])
    assert worse(before, samples(values[60:]), 60) == ()
    assert worse(before, samples(value + 200 for value in values[60:]), 60) == (DELAY,)


def test_drops_that_nobody_knew_before_are_found_and_a_burst_is_not():
    before = samples([0.0] * LEAST_STEPS, DROPS)
    assert worse(before, samples([2000.0] * IN_A_ROW, DROPS), WATCH) == (DROPS,)
    bursts = [2000.0] * (IN_A_ROW - 1) + [0.0] + [2000.0] * (IN_A_ROW - 1)
    assert worse(before, samples(bursts, DROPS), WATCH) == ()


def test_a_harm_that_ends_within_the_watch_is_found():
    assert worse(samples(calm(60)), samples([500.0] * IN_A_ROW + calm(8)), WATCH) == (DELAY,)


def test_a_better_placement_and_equal_values_are_never_stopped():
    assert worse(samples(calm(60)), samples([1.0] * 120), 120) == ()
    assert worse(samples([0.0] * 60), samples([0.0] * 120), 120) == ()


def test_all_measures_that_became_worse_are_named():
    values = calm(LEAST_STEPS) + [900.0] * 6
    both = [Sample(NOON, {DELAY.name: value, PRESSURE.name: 2 * value}, {}) for value in values]
    assert worse(both[:LEAST_STEPS], both[LEAST_STEPS:], WATCH) == (DELAY, PRESSURE)


def test_a_measure_that_is_known_in_too_few_steps_is_named():
    before = samples([None] * 9 + calm(LEAST_STEPS - 9))
    assert unwatched(before) == {DELAY: LEAST_STEPS - 9, SOFTNET: 0, PRESSURE: 0}
    assert (is_blind(before), worse(before, samples([500.0] * 60), WATCH)) == (True, ())
    assert unwatched(samples(calm(LEAST_STEPS))) == {SOFTNET: 0, PRESSURE: 0}
    assert not is_blind(samples(calm(LEAST_STEPS)))


def test_the_mark_lies_above_all_levels_before_the_run():
    values = [random.Random(1).gauss(100, 20) for _ in range(60)]
    assert mark(values, MARGIN, WATCH, ALPHA) > max(values)


def test_a_distance_below_the_margin_counts_as_the_margin():
    assert mark([0.0] * 60, 1.0, WATCH, ALPHA) == mark([0.0] * 60, 2.0, WATCH, ALPHA) / 2 > 1.0
    assert mark(calm(60), MARGIN, WATCH, ALPHA) == mark([10.0] * 60, MARGIN, WATCH, ALPHA)


def test_fewer_steps_a_longer_watch_and_a_smaller_share_of_false_stops_raise_the_mark():
    """Then less is known of a stretch as long as the watch."""
    values = [float(7 * index % 20) for index in range(60)]
    cases = [(60, 15, 0.05), (60, 15, 0.01), (36, 15, 0.01), (36, 60, 0.01)]
    marks = [mark(values[:count], MARGIN, steps, alpha) for count, steps, alpha in cases]
    assert marks == sorted(set(marks))


def test_more_stretches_than_one_over_alpha_need_no_factor():
    """The highest level is the mark then, and what a trend may add."""
    values = [0.0] * 996 + [40.0] * IN_A_ROW + [0.0] * 1000
    assert mark(values, MARGIN, 10, ALPHA) == pytest.approx(40 + TREND * 10 / 2000 * 40)
