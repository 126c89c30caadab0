"""The times of a watch."""

from datetime import timedelta

import pytest

from pinner.model.journal import DEFAULT_WATCH_SECONDS, MAX_WATCH_SECONDS, MIN_WATCH_SECONDS
from pinner.model.measures import ROWS
from pinner.service.watch_times import STEP, known_span, known_span_now, needed_steps, watched_span

HOUR = timedelta(hours=1)
ALL = pytest.mark.parametrize("seconds", range(MIN_WATCH_SECONDS, MAX_WATCH_SECONDS + 1, 5))


def test_the_history_has_fine_steps_of_an_hour():
    assert STEP * ROWS[STEP] == 3600


@ALL
def test_an_hour_suffices_for_each_watch(seconds):
    """The step beside the run does not count, and a run may begin within a step."""
    assert known_span(seconds) >= timedelta(seconds=STEP * (needed_steps(seconds) + 2))


@ALL
def test_the_history_has_the_time_before_the_run_until_a_look_that_is_late(seconds):
    late = watched_span(seconds) + timedelta(minutes=4, seconds=55)
    assert known_span(seconds) + late <= HOUR
    assert known_span_now(seconds, late) == known_span(seconds)


def test_after_a_long_run_the_history_has_less_time_before_it():
    assert known_span_now(DEFAULT_WATCH_SECONDS, timedelta(minutes=50)) == timedelta(minutes=9, seconds=55)


def test_a_clock_that_was_set_back_lengthens_nothing():
    assert known_span_now(DEFAULT_WATCH_SECONDS, -HOUR) == known_span(DEFAULT_WATCH_SECONDS)


@pytest.mark.parametrize(("seconds", "steps"), [(15, 50), (17, 50), (30, 80), (60, 140), (240, 500)])
def test_a_watch_needs_ten_times_the_steps_that_it_compares(seconds, steps):
    """A watch of 30 s compares eight steps of 5 s at most."""
    assert needed_steps(seconds) == steps
