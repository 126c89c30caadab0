"""How long a watch looks at the measures after a run, and which time before the run it needs. Pure."""

from datetime import timedelta

from pinner.model.outcome.measures import ROWS
from pinner.outcome.watch import least_steps

STEP = min(ROWS)
"""Of the history that a watch reads, in seconds."""

LATE = timedelta(seconds=3 * STEP)
"""After it the steps up to a moment are complete: the next count completes a step."""

LEEWAY = timedelta(minutes=5)
"""The run and a late look may together take so long without a loss of measures before the run."""

_KEPT = timedelta(seconds=STEP * ROWS[STEP])
"""For so long, the history has such steps: an hour."""


def watched_span(watch_seconds: int) -> timedelta:
    """After the run."""
    return timedelta(seconds=watch_seconds) + LATE


def known_span(watch_seconds: int) -> timedelta:
    """Before the run.

    The history must have it until the last look: if the first steps were lost during the watch, the mark would move,
    and more looks would make a false stop more likely.
    """
    return _KEPT - watched_span(watch_seconds) - LEEWAY


def known_span_now(watch_seconds: int, since: timedelta) -> timedelta:
    """What the history still has of it so long after the begin of the run. A step is left to the clock."""
    return min(known_span(watch_seconds), _KEPT - since - timedelta(seconds=STEP))


def needed_steps(watch_seconds: int) -> int:
    """Before the run, of a measure. The first step after the run does not count."""
    return least_steps(int(watched_span(watch_seconds).total_seconds()) // STEP - 1)
