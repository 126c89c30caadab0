"""A thread of a server that makes a pass every few seconds."""

import logging
import threading
from collections.abc import Callable

from pinner.heartbeat import Heartbeat
from pinner.model.errors import PinnerError
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

PASS_SECONDS = 5.0
"""Seconds between two passes."""

LIMIT_SECONDS = 120.0
"""The longest pass; the thread counts as hung then."""


class Passes:
    """Makes a pass every PASS_SECONDS until it is stopped. A pass that fails is logged, and the next one is made."""

    def __init__(self, name: str, make_pass: Callable[[], None], *, first_seconds: float = PASS_SECONDS) -> None:
        """``first_seconds`` lie before the first pass."""
        self._first_seconds = first_seconds
        self._make_pass = make_pass
        self._failures = Repeated(LOG)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self.heartbeat = Heartbeat(self._thread, LIMIT_SECONDS)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a pass under way is not waited for."""
        self.heartbeat.end()
        self._stop.set()

    def _repeat(self) -> None:
        wait = self._first_seconds
        while not self._stop.wait(wait):
            wait = PASS_SECONDS
            self.heartbeat.beat()
            try:
                self._make_pass()
                self._failures.over(f"{self._thread.name}: the passes succeed again")
            except PinnerError as error:
                self._failures.warn("%s: a pass failed: %s", self._thread.name, error)
            except Exception:
                LOG.exception("%s: a pass failed", self._thread.name)
