"""The begin and the ends of the watch of a run, other than its verdict. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pinner.model.errors import PinnerError, TooFewMeasures
from pinner.model.outcome.outcome import Sample, Watch
from pinner.model.run.journal import Run
from pinner.outcome.watch import IN_A_ROW, is_blind, known_steps, unwatched
from pinner.service.outcome.run_sides import LATE, SPAN, STEP, Sides, needed_steps, watched_span


def require_sight(before: Sequence[Sample], watch_seconds: int) -> None:
    """Raises TooFewMeasures where a watch could not find a run worse that begins now."""
    if not is_blind(before, least := needed_steps(watch_seconds)):
        return
    missing = least - max(unwatched(before, least).values())
    raise TooFewMeasures(blind_spots(before, watch_seconds), missing * STEP)


def blind_spots(before: Sequence[Sample], watch_seconds: int) -> str:
    least = needed_steps(watch_seconds)
    short = [f"{each.name} ({least - count} of {least})" for each, count in unwatched(before, least).items()]
    return f"not watched, because steps before the run are missing: {', '.join(short)}" if short else ""


def watch_end(run: Run) -> datetime:
    assert run.ended_at is not None
    return run.ended_at + watched_span(run.watch_seconds)


def is_over(run: Run, sides: Sides, now: datetime) -> bool:
    """LATE longer where the last steps, without which the watch could not tell anything, are not complete yet."""
    is_decidable = known_steps(sides.before, sides.after, needed_steps(run.watch_seconds)) >= IN_A_ROW
    return now >= watch_end(run) + (timedelta(0) if is_decidable else LATE)


def out_of_time(run: Run, now: datetime) -> Watch | None:
    """The end of a watch that no measures can decide any more because of the time."""
    assert run.ended_at is not None
    # The agent puts the history from before the step aside.
    if run.ended_at < run.started_at - LATE:
        at = run.ended_at.isoformat(timespec="seconds")
        return Watch("stopped", now, f"the clock was set back to {at}, before the begin of the run; nothing was undone")
    if now < run.ended_at - LATE:
        at = now.isoformat(timespec="seconds")
        return Watch("stopped", now, f"the clock was set back to {at}, before the end of the run; nothing was undone")
    if (late := now - watch_end(run)) > SPAN:
        seconds = f"{late.total_seconds():.0f} s"
        return Watch("stopped", now, f"no server looked in time: it is {seconds} too late; nothing was undone")
    return None


def undecided(sides: Sides, watch_seconds: int, now: datetime) -> Watch:
    least, spots = needed_steps(watch_seconds), blind_spots(sides.before, watch_seconds)
    if not (sides.before and sides.after):
        return Watch("stopped", now, sides.why or "nothing was measured before the run, or after it")
    if not sides.why and is_blind(sides.before, least):
        return Watch("stopped", now, f"{spots}; nothing was undone")
    if not sides.why and (count := known_steps(sides.before, sides.after, least)) < IN_A_ROW:
        return Watch("stopped", now, f"only {count} of {IN_A_ROW} steps after the run are known; nothing was undone")
    steps = f"in {len(sides.after)} steps"
    if spots:
        steps += f"; {spots}"
    if sides.why:
        return Watch("stopped", now, f"{sides.why}; not worse until then, {steps}")
    return Watch("not_worse", now, f"no measure became worse for certain, {steps}")


def not_undone(why: str, refusal: PinnerError, now: datetime) -> Watch:
    return Watch("worse", now, f"{why}; it cannot be undone: {refusal}")
