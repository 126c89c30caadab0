"""A probe switches between two placements in windows of random order, and tests whether they differ."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.outcome.outcome import Arm, Outcome, Window

ProbeState = Literal["running", "ended", "cancelled", "failed", "interrupted"]
"""running      the probe has not ended
ended        all windows are over, and the probe has an outcome
cancelled    somebody ended the probe before its time
failed       a change of the placement failed
interrupted  the server ended before the probe"""

MIN_WINDOWS, DEFAULT_WINDOWS, MAX_WINDOWS = 2, 8, 50
"""Windows of each placement. Four measures need five at least."""

MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 15, 20, 600
"""The length of a window."""

WASH_OUT_SECONDS = 15
"""They do not count, before each window: a count is spread over the steps that it touches, and guests need a moment to
run as placed."""

PROBE_ID = "probe-"

PROBE_ORIGIN = "the probe "
"""Begins the origin of each run that a probe starts."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A test of a plan on its host, from its start to its end."""

    id: str
    """The id of the probe."""
    host: str
    """The name of the host."""
    plan: str
    """The id of the plan."""
    actor: str
    """The user who started the probe."""
    origin: str
    """Where the call came from: an address, or the CLI's terminal."""
    state: ProbeState
    """The state of the probe."""
    started_at: datetime
    """The time of the start."""
    order: tuple[Arm, ...]
    """The placement of each window, in the order that was drawn."""
    seconds: int
    """The length of a window in seconds."""
    guests: tuple[str, ...]
    """The names of the guests that the plan changes; empty: it changes none, and all guests are measured."""
    windows: tuple[Window, ...] = ()
    """The windows that are over, in their order."""
    ended_at: datetime | None = None
    """The time of the end; null while the probe is running."""
    why: str = ""
    """Why the probe has no outcome; else empty."""
    outcome: Outcome | None = None
    """The result of the test; null unless the state is ended."""
    left: str = ""
    """The run that the probe could not roll back, so that the host still has the planned placement; else empty."""

    @property
    def total_seconds(self) -> int:
        """Without the time of its runs."""
        return len(self.order) * (self.seconds + WASH_OUT_SECONDS) + WASH_OUT_SECONDS

    @property
    def mark(self) -> str:
        return f"{PROBE_ORIGIN}{self.id}"
