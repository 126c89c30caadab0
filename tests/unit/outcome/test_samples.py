"""Samples of the history, and the comparison of two spans of them."""

from datetime import timedelta

import pytest
from support.values import NOON

from pinner.model.outcome.measures import GUEST_SERIES, HOST, HOST_SERIES, History
from pinner.model.outcome.outcome import MEASURES, Comparison, Sample
from pinner.outcome.samples import between, observed, samples, watched_measures
from pinner.outcome.watch import worse

DELAY = MEASURES[0]


def history(subject, step=5, **values):
    kept = HOST_SERIES if subject == HOST else GUEST_SERIES
    length = max(map(len, values.values()), default=2)
    return History(subject, subject, NOON, step, {each.name: values.get(each.name, (None,) * length) for each in kept})


def of_delay(*values, begin=NOON):
    return [Sample(begin + timedelta(seconds=5 * index), {"run_delay": each}, {}) for index, each in enumerate(values)]


def test_run_delay_is_that_of_all_roles_and_all_guests_in_question():
    first = history("a", delay_vcpu=(1.0, 2.0), delay_vhost=(0.5, 0.5))
    found = samples([first, history("b", delay_vcpu=(4.0, 4.0)), history("c", delay_vcpu=(9.0, 9.0))], ("a", "b"), 5)
    assert [each.values for each in found] == [{"run_delay": 5.5}, {"run_delay": 6.5}]
    assert [each.control for each in found] == [{"run_delay": 9.0}, {"run_delay": 9.0}]


def test_bits_are_known_of_each_guest_in_question():
    found = samples(
        [history(name, bits_in=(value, None)) for name, value in zip("abc", (1.0, 2.0, 4.0), strict=True)],
        ("a", "b"),
        5,
    )
    assert [(each.values, each.bits) for each in found] == [
        ({"bits_in": 3.0}, {"bits_in": {"a": 1.0, "b": 2.0}, "bits_out": {}})
    ]


def test_drops_of_a_guest_without_a_tap_are_left_out():
    found = samples([history("a", drops=(3.0, 4.0)), history("b")], ("a", "b"), 5)
    assert [each.values["drops"] for each in found] == [3.0, 4.0]


def test_a_step_that_is_unknown_for_one_of_the_guests_is_not_known():
    found = samples([history("a", drops=(3.0, 4.0)), history("b", drops=(None, 1.0))], ("a", "b"), 5)
    assert [each.values for each in found] == [{"drops": 5.0}]


def test_a_history_of_another_step_does_not_count():
    assert samples([history(HOST, step=60, pressure=(3.0, 4.0))], (), 5) == ()


def test_a_step_counts_where_it_lies_in_the_span_as_a_whole():
    found = of_delay(1.0, 2.0, 3.0, 4.0)
    kept = between(found, NOON, NOON + timedelta(seconds=12), 5)
    assert [each.values["run_delay"] for each in kept] == [2.0, 3.0]


def test_the_difference_is_a_median_and_higher_counts_equal_pairs_half():
    found = observed(DELAY, of_delay(1.0, 2.0, 900.0), of_delay(2.0, 3.0))
    assert (found.steps_before, found.steps_after, found.control) == (3, 2, None)
    assert found.guests == Comparison(pytest.approx(301.0), 2.5, 0.5, pytest.approx(3.5 / 6))


def test_one_side_alone_is_no_comparison():
    assert observed(DELAY, of_delay(1.0), []).guests is None


def test_a_clear_rise_is_worse_within_four_steps():
    found = worse(of_delay(*(10.0 + index % 5 for index in range(60))), of_delay(90.0, 95.0, 91.0, 99.0), 15, 60)
    assert found == (DELAY,)


def test_a_rise_below_the_margin_is_not_worse():
    steady = (10.0,) * 60
    assert worse(of_delay(*steady), of_delay(*(10.0 + DELAY.margin for _ in range(200))), 200, 60) == ()


def test_a_measure_that_was_unknown_before_is_not_watched():
    assert worse([], of_delay(*(90.0,) * 50), 50, 60) == ()


def test_pings_are_the_mean_of_the_guests_that_answer():
    pinged = [
        history("a", ping=(2.0, 4.0), ping_loss=(0.0, 50.0)),
        history("b", ping=(4.0, 8.0), ping_loss=(10.0, 0.0)),
    ]
    found = samples([*pinged, history("filters")], ("a", "b", "filters"), 5)
    assert [each.values for each in found] == [{"ping": 3.0, "ping_loss": 5.0}, {"ping": 6.0, "ping_loss": 25.0}]


def test_the_loss_is_that_of_all_guests_in_question_together():
    """A guest that hardly sends does not count as much as a busy one."""
    busy = history("a", drops=(5.0, 0.0), packets_in=(900.0, 0.0), packets_out=(95.0, 0.0))
    quiet = history("b", drops=(0.0, 0.0), packets_in=(500.0, 0.0), packets_out=(500.0, 0.0))
    found = samples([busy, quiet], ("a", "b"), 5)
    assert [(each.values["loss"], each.values["packets_in"]) for each in found] == [(0.25, 1400.0), (0.0, 0.0)]


def test_a_value_that_looks_back_beyond_the_begin_does_not_count():
    """The p99 of the pings before a run tells nothing about the time after it."""
    steps = [Sample(NOON + timedelta(seconds=at), {"ping": 1.0, "ping_p99": 2.0}, {}) for at in (5, 95, 100, 105)]
    kept = between(steps, NOON, NOON + timedelta(seconds=105), 5)
    assert [sorted(each.values) for each in kept] == [["ping"], ["ping"], *[["ping", "ping_p99"]] * 2]


def test_an_outcome_has_pings_only_where_a_guest_answers_them():
    without = watched_measures(of_delay(1.0), of_delay(2.0))
    assert [each.name for each in without] == ["run_delay", "drops", "softnet_drops", "pressure"]
    control = [Sample(NOON, {}, {"ping": 1.0})]
    assert [each.name for each in watched_measures(of_delay(1.0), control)][-1] == "ping"


def test_the_guard_of_a_watch_looks_at_pings():
    before = [Sample(NOON, {"ping": 1.0 + index % 3 / 10}, {}) for index in range(60)]
    after = [Sample(NOON, {"ping": 900.0}, {}) for _ in range(6)]
    assert [each.name for each in worse(before, after, 15, 60)] == ["ping"]
