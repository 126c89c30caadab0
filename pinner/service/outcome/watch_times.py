"""The times of a watch: how long it looks at the measures after a run, and which time before the run it needs. Pure."""

from datetime import timedelta

from pinner.model.outcome.measures import ROWS
from pinner.outcome.watch import least_steps

STEP = min(ROWS)
"""The step of the history that a watch reads, in seconds."""

LATE = timedelta(seconds=3 * STEP)
"""After this time, the steps up to a moment are complete: the next count completes a step."""

LEEWAY = timedelta(minutes=5)
"""So long may the run and a late look at its watch take, all together, without a loss of measures before the run."""

_KEPT = timedelta(seconds=STEP * ROWS[STEP])
"""For so long, the history has such steps: an hour."""


def watched_span(watch_seconds: int) -> timedelta:
    """The time after the run whose steps are compared."""
    return timedelta(seconds=watch_seconds) + LATE


def known_span(watch_seconds: int) -> timedelta:
    """The time before the run whose steps are compared.

    The history must have it until the last look: if the first steps were lost during the watch, the mark would move,
    and more looks would make a false stop more likely.
    """
    return _KEPT - watched_span(watch_seconds) - LEEWAY


def known_span_now(watch_seconds: int, since: timedelta) -> timedelta:
    """What the history still has of ``known_span`` so long after the begin of the run. A step is left to the clock."""
    return min(known_span(watch_seconds), _KEPT - since - timedelta(seconds=STEP))


def needed_steps(watch_seconds: int) -> int:
    """The steps before the run that a measure needs to be watched. The first step after the run does not count."""
    return least_steps(int(watched_span(watch_seconds).total_seconds()) // STEP - 1)
