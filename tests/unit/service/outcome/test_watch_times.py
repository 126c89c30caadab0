"""The times of a watch."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.values import NOON, make_run

from pinner.model.outcome.measures import ROWS
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS, MAX_WATCH_SECONDS, MIN_WATCH_SECONDS
from pinner.service.outcome.measures import LATE, SPAN, STEP, known_span, known_span_now, needed_steps, watched_span
from pinner.service.outcome.outcomes import out_of_time

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


LONG = make_run(started_at=NOON, ended_at=NOON + HOUR, watch_seconds=60)
"""A run of an hour."""
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (NOON + HOUR - LATE - SECOND, "the clock was set back to 2026-11-21T12:59:44+00:00, before the end of the run"),
        (NOON + HOUR - LATE, ""),
        (NOON + HOUR + watched_span(60) + SPAN, ""),
        (NOON + HOUR + watched_span(60) + SPAN + SECOND, "no server looked in time: it is 301 s too late"),
    ],
)
def test_a_watch_stops_only_where_the_time_leaves_no_measures(now, why):
    stopped = out_of_time(LONG, now)
    assert (stopped.why if stopped else "").startswith(why)
    assert (stopped is None) == (why == "")


def test_a_watch_stops_where_the_clock_was_set_back_during_the_run():
    stopped = out_of_time(replace(LONG, ended_at=NOON - LATE - SECOND), NOON)
    assert (stopped.state, "before the begin of the run" in stopped.why) == ("stopped", True)
    assert out_of_time(replace(LONG, ended_at=NOON - LATE), NOON) is None
