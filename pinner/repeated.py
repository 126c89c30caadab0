"""Warnings of a failure that repeats: the log gets one a minute, and one line when it is over."""

import logging
import time
from collections.abc import Callable

SECONDS = 60.0


class Repeated:
    """The failures of one place in the code."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._logged: float | None = None
        self._left_out = 0

    def warn(self, message: str, *values: object) -> None:
        """Log the failure, unless one was logged within the last minute."""
        now = self._clock()
        if self._logged is not None and now - self._logged < SECONDS:
            self._left_out += 1
            return
        more = f" ({self._left_out} times more since the last line)" if self._left_out else ""
        self._log.warning(message + "%s", *values, more)
        self._logged, self._left_out = now, 0

    def over(self, message: str) -> None:
        """Log that it works again, if it failed before."""
        if self._logged is not None:
            self._log.warning("%s", message)
        self._logged, self._left_out = None, 0
