"""Limits the records of refused runs, in the agent's trail and in its log: nobody fills the disk with them."""

import threading
import time
from collections.abc import Callable

MAX_RECORDS = 60
"""Records of refusals in a window."""
WINDOW_SECONDS = 60.0
"""A window starts with a refusal. Refusals above MAX_RECORDS are only counted."""


class RefusalLimit:
    """The windows of one agent. Several threads may use one object; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._ends = 0.0
        self._recorded = 0
        self._left_out = 0

    def add(self) -> bool:
        """Count a refusal; whether it may have a record of its own."""
        with self._guard:
            if (now := self._clock()) >= self._ends:
                self._ends, self._recorded = now + WINDOW_SECONDS, 0
            self._recorded += 1
            if self._recorded <= MAX_RECORDS:
                return True
            self._left_out += 1
            return False

    def take_left_out(self) -> int:
        """The number of refusals without a record in windows that have ended; they are reported once."""
        with self._guard:
            if self._clock() < self._ends:
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out
