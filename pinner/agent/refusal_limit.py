"""Limits the records of refused runs, in the agent's trail and in its log, and the calls that are accepted and do
nothing: nobody fills the disk with them."""

import threading
import time
from collections.abc import Callable

from pinner.model.errors import Busy

MAX_RECORDS = 60
"""Records of refusals in a window."""
WINDOW_SECONDS = 60.0
"""A window starts with a refusal. Refusals above MAX_RECORDS are only counted."""

MAX_IDLE = 60
"""Calls in a window that are accepted, recorded, and did nothing."""


class _Window:
    """Counts events in a window. Several threads may use one object; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._ends = 0.0
        self._count = 0

    def add(self) -> int:
        """Count an event; the number of events in its window, with it."""
        with self._guard:
            if (now := self._clock()) >= self._ends:
                self._ends, self._count = now + WINDOW_SECONDS, 0
            self._count += 1
            return self._count

    def count(self) -> int:
        """The number of events in the window; 0 where it has ended."""
        with self._guard:
            return self._count if self._clock() < self._ends else 0


class RefusalLimit:
    """The windows of one agent. Several threads may use one object; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = _Window(clock)
        self._guard = threading.Lock()
        self._left_out = 0

    def add(self) -> bool:
        """Count a refusal; whether it may have a record of its own."""
        with self._guard:
            if self._window.add() <= MAX_RECORDS:
                return True
            self._left_out += 1
            return False

    def take_left_out(self) -> int:
        """The number of refusals without a record in windows that have ended; they are reported once."""
        with self._guard:
            if self._window.count():
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out


class IdleLimit:
    """The windows of one agent for calls that did nothing. Several threads may use one object."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_IDLE) -> None:
        """``clock`` returns monotonic seconds; ``most`` calls may do nothing."""
        self._window = _Window(clock)
        self._most = most

    def add(self) -> None:
        """Count a call that did nothing."""
        self._window.add()

    def is_full(self) -> bool:
        """Whether so many calls did nothing that the window takes no more."""
        return self._window.count() >= self._most

    def require(self) -> None:
        """Raises Busy where the window takes no more."""
        if self.is_full():
            raise Busy("the agent", f"{self._most} calls of the last {WINDOW_SECONDS:g} s did nothing", overdue=False)
