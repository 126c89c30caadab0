"""The guard of a placement that is watched."""

import random

import pytest
from support.made_up.series import rising
from support.values import NOON

from pinner.model.outcome.outcome import MEASURES, Sample
from pinner.outcome.watch import (
    IN_A_ROW,
    LEAST_STEPS,
    TREND,
    is_blind,
    known_steps,
    least_steps,
    mark,
    unwatched,
    worse,
)

DELAY, DROPS, SOFTNET, PRESSURE, *_ = MEASURES
WATCH = 15
"""The steps of a watch of a minute."""
LEAST = least_steps(WATCH)
MARGIN, ALPHA = 5.0, 0.01


def samples(values, measure=DELAY):
    """Steps with these values of the measure; None: it is not known."""
    return [Sample(NOON, {} if value is None else {measure.name: value}, {}) for value in values]


def calm(count):
    return [float(index % 5 + 10) for index in range(count)]


def test_a_large_harm_is_found_after_few_steps():
    before, after = samples(calm(LEAST)), samples([500.0] * IN_A_ROW)
    assert worse(before, after, WATCH, LEAST) == (DELAY,)
    assert worse(before, after[1:], WATCH, LEAST) == ()


def test_a_moderate_harm_is_found_after_a_long_time_before_the_run():
    after = samples([18.0] * WATCH)
    assert worse(samples(calm(360)), after, WATCH, LEAST) == (DELAY,)
    assert worse(samples(calm(LEAST)), after, WATCH, LEAST) == ()


def test_a_load_that_only_grows_is_no_harm_and_a_large_harm_is_found_beside_it():
    values = rising(LEAST + WATCH, random.Random(4))
    before = samples(values[:LEAST])
    assert worse(before, samples(values[LEAST:]), WATCH, LEAST) == ()
    assert worse(before, samples(value + 200 for value in values[LEAST:]), WATCH, LEAST) == (DELAY,)


def test_drops_that_nobody_knew_before_are_found_and_a_burst_is_not():
    before = samples([0.0] * LEAST, DROPS)
    assert worse(before, samples([2000.0] * IN_A_ROW, DROPS), WATCH, LEAST) == (DROPS,)
    bursts = [2000.0] * (IN_A_ROW - 1) + [0.0] + [2000.0] * (IN_A_ROW - 1)
    assert worse(before, samples(bursts, DROPS), WATCH, LEAST) == ()


def test_a_harm_that_ends_within_the_watch_is_found():
    assert worse(samples(calm(LEAST)), samples([500.0] * IN_A_ROW + calm(8)), WATCH, LEAST) == (DELAY,)


def test_a_better_placement_and_equal_values_are_never_stopped():
    assert worse(samples(calm(LEAST)), samples([1.0] * WATCH), WATCH, LEAST) == ()
    assert worse(samples([0.0] * LEAST), samples([0.0] * WATCH), WATCH, LEAST) == ()


def test_all_measures_that_became_worse_are_named():
    values = calm(LEAST) + [900.0] * 6
    both = [Sample(NOON, {DELAY.name: value, PRESSURE.name: 2 * value}, {}) for value in values]
    assert worse(both[:LEAST], both[LEAST:], WATCH, LEAST) == (DELAY, PRESSURE)


def test_a_measure_that_is_known_in_too_few_steps_is_named():
    before, after = samples([None] * 9 + calm(LEAST - 1)), samples([500.0] * WATCH)
    assert unwatched(before, LEAST) == {DELAY: LEAST - 1, SOFTNET: 0, PRESSURE: 0}
    assert (is_blind(before, LEAST), worse(before, after, WATCH, LEAST)) == (True, ())
    assert known_steps(before, after, LEAST) == 0


def test_a_measure_that_is_known_in_enough_steps_is_watched():
    before, after = samples([None] * 9 + calm(LEAST)), samples([500.0] * WATCH)
    assert unwatched(before, LEAST) == {SOFTNET: 0, PRESSURE: 0}
    assert (is_blind(before, LEAST), worse(before, after, WATCH, LEAST)) == (False, (DELAY,))
    assert known_steps(before, after, LEAST) == WATCH


def test_one_measure_is_watched_where_another_one_is_known_for_too_short_a_time():
    before = [
        Sample(NOON, {DELAY.name: value} | ({PRESSURE.name: value} if index else {}), {})
        for index, value in enumerate(calm(LEAST))
    ]
    after = [Sample(NOON, {DELAY.name: 500.0, PRESSURE.name: 900.0}, {})] * WATCH
    assert unwatched(before, LEAST) == {PRESSURE: LEAST - 1, SOFTNET: 0}
    assert worse(before, after, WATCH, LEAST) == (DELAY,)


@pytest.mark.parametrize(
    ("watched", "least"), [(1, LEAST_STEPS), (3, LEAST_STEPS), (4, 40), (5, 50), (8, 80), (50, 500)]
)
def test_a_watch_needs_ten_times_its_steps_and_never_fewer_than_three_minutes(watched, least):
    assert least_steps(watched) == least


def test_the_mark_lies_above_all_levels_before_the_run():
    values = [random.Random(1).gauss(100, 20) for _ in range(60)]
    assert mark(values, MARGIN, WATCH, ALPHA) > max(values)


def test_a_distance_below_the_margin_counts_as_the_margin():
    assert mark([0.0] * 60, 1.0, WATCH, ALPHA) == mark([0.0] * 60, 2.0, WATCH, ALPHA) / 2 > 1.0
    assert mark(calm(60), MARGIN, WATCH, ALPHA) == mark([10.0] * 60, MARGIN, WATCH, ALPHA)


BY_NAME = {measure.name: measure for measure in MEASURES}
PACKETS, BITS = BY_NAME["packets_in"], BY_NAME["bits_in"]


def steady(count, mean=70_000.0):
    return [mean + index % 7 * mean / 100 for index in range(count)]


def test_traffic_that_falls_from_a_steady_height_is_worse_and_more_of_it_is_not():
    before = samples(steady(360), PACKETS)
    assert worse(before, samples([20_000.0] * IN_A_ROW, PACKETS), WATCH, LEAST) == (PACKETS,)
    assert worse(before, samples(steady(WATCH, 500_000.0), PACKETS), WATCH, LEAST) == ()


@pytest.mark.parametrize("period", [6, 40, 120])
def test_a_sender_that_came_and_went_before_the_run_may_stop_after_it(period):
    """Nobody knows then whether the plan or the sender ended the traffic."""
    values = [value if index // period % 2 else 0.0 for index, value in enumerate(steady(360))]
    assert worse(samples(values, PACKETS), samples([0.0] * WATCH, PACKETS), WATCH, LEAST) == ()


def test_fewer_packets_with_as_many_bits_are_no_loss():
    before, after = [
        [Sample(NOON, {PACKETS.name: packets, BITS.name: 1e9}, {}) for packets in series]
        for series in (steady(360), [20_000.0] * WATCH)
    ]
    assert worse(before, after, WATCH, LEAST) == ()
    fewer_bits = [Sample(NOON, {**sample.values, BITS.name: 2e8}, {}) for sample in after]
    assert worse(before, fewer_bits, WATCH, LEAST) == (PACKETS, BITS)


@pytest.mark.parametrize(("small", "found"), [(5e7, ()), (0.0, (PACKETS,))])
def test_bits_of_another_guest_excuse_no_guest_that_gets_no_more_small_packets(small, found):
    """Guest "a" has 5e7 bits of 5e9, so the sum hides them."""

    def guests(packets, bits):
        of = {"a": bits, "b": 5e9}
        return Sample(NOON, {PACKETS.name: packets, BITS.name: sum(of.values())}, {}, {BITS.name: of})

    before = [guests(packets, 5e7) for packets in steady(360)]
    assert worse(before, [guests(20_000.0, small)] * WATCH, WATCH, LEAST) == found


def test_the_measures_of_traffic_share_the_false_stops_of_one_measure():
    """Nine measures of their own would move the mark of the run delay half as far again."""
    others = {measure.name: 0.0 for measure in MEASURES[1:]}
    before = [Sample(NOON, {DELAY.name: value, **others}, {}) for value in calm(LEAST)]
    alone = [Sample(NOON, {DELAY.name: value, DROPS.name: 0.0}, {}) for value in calm(LEAST)]

    def marked(steps, known):
        value = mark([sample.values[DELAY.name] for sample in steps], DELAY.margin, WATCH, 0.05 / known)
        after = [Sample(NOON, {DELAY.name: value + above}, {}) for above in (0.0, 1e-6) for _ in range(IN_A_ROW)]
        return worse(steps, after[:IN_A_ROW], WATCH, LEAST), worse(steps, after[IN_A_ROW:], WATCH, LEAST)

    assert marked(alone, 2) == ((), (DELAY,))
    assert marked(before, 6) == ((), (DELAY,))


def test_a_percentile_that_looks_back_is_watched_only_where_the_watch_is_longer():
    p99 = BY_NAME["ping_p99"]
    before, after = samples([2.0] * 500, p99), samples([900.0] * IN_A_ROW, p99)
    assert worse(before, after, 30, 300) == (p99,)
    assert worse(before, after, 8, 80) == ()


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
