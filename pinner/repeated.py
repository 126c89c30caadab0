"""Warnings of a failure that repeats: the log gets one a minute, and one line when it is over."""

import logging
import threading
import time
from collections.abc import Callable

SECONDS = 60.0


class Repeated:
    """The failures of one place, in any thread. One that comes and goes many times a minute is logged as one."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._logged: float | None = None
        self._left_out = 0
        self._is_told = False
        self._lock = threading.Lock()

    def warn(self, message: str, *values: object) -> None:
        """Log the failure, unless one was logged within the last minute."""
        now = self._clock()
        with self._lock:
            if self._logged is not None and now - self._logged < SECONDS:
                self._left_out += 1
                return
            more = f" ({self._left_out} times more since the last line)" if self._left_out else ""
            self._logged, self._left_out, self._is_told = now, 0, True
        self._log.warning(message + "%s", *values, more)

    def over(self, message: str) -> None:
        """Log that it works again, if the log says that it failed."""
        with self._lock:
            was_told, self._is_told = self._is_told, False
        if was_told:
            self._log.warning("%s", message)
