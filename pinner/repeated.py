"""Warnings of a failure that repeats: the log gets one a minute, and one line when it is over."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 60.0


@dataclass(slots=True)
class _Lines:
    """The lines of one kind in the log."""

    last: float | None = None
    """The time of the last one."""
    left_out: int = 0
    """How many were left out since."""


class Repeated:
    """The failures of one place, in any thread. One that comes and goes many times a minute is logged as one."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._expected, self._unforeseen = _Lines(), _Lines()
        self._is_told = False
        self._lock = threading.Lock()

    def warn(self, message: str, *values: object) -> None:
        """Log the failure, unless one was logged within the last minute."""
        self._write(self._expected, logging.WARNING, message, values)

    def exception(self, message: str, *values: object) -> None:
        """Log the unforeseen error that is being handled, with its traceback, unless one was logged within the last
        minute. It is logged also where ``warn`` has logged another failure."""
        self._write(self._unforeseen, logging.ERROR, message, values)

    def _write(self, lines: "_Lines", level: int, message: str, values: tuple[object, ...]) -> None:
        now = self._clock()
        with self._lock:
            if lines.last is not None and now - lines.last < SECONDS:
                lines.left_out += 1
                return
            more = f" ({lines.left_out} times more since the last line)" if lines.left_out else ""
            lines.last, lines.left_out, self._is_told = now, 0, True
        self._log.log(level, message + "%s", *values, more, exc_info=level == logging.ERROR)

    def over(self, message: str) -> None:
        """Log that it works again, if the log says that it failed."""
        with self._lock:
            was_told, self._is_told = self._is_told, False
        if was_told:
            self._log.warning("%s", message)
