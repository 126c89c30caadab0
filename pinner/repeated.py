"""Warnings of a failure that repeats: one a minute, and one line when it is over."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS = 60.0


@dataclass(slots=True)
class _Lines:
    last: float | None = None
    left_out: int = 0
    """Since the last one."""


class Repeated:
    """The failures of one place, in any thread."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._expected, self._unforeseen = _Lines(), _Lines()
        self._is_told = False
        self._lock = threading.Lock()

    def warn(self, message: str, *values: object) -> None:
        self._write(self._expected, logging.WARNING, message, values)

    def exception(self, message: str, *values: object) -> None:
        """Log the error that is being handled, with its traceback, also where ``warn`` has logged another failure."""
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
        """Does nothing where the log has no failure."""
        with self._lock:
            was_told, self._is_told = self._is_told, False
        if was_told:
            self._log.warning("%s", message)
