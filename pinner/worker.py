"""Threads of a server that work until they are stopped."""

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from pinner.heartbeat import BeatingThread
from pinner.model.errors import PinnerError
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

T = TypeVar("T")

PASS_SECONDS = 5.0
LIMIT_SECONDS = 120.0
"""The longest pass; the thread counts as hung then."""


class Worker(ABC):
    """Start it once, and stop it once."""

    def __init__(self, name: str, limit: float = math.inf) -> None:
        """``limit``: the most seconds between two beats of its heart."""
        self._stop = threading.Event()
        self._thread = BeatingThread(self._repeat, name, limit)
        self.heartbeat = self._thread.heartbeat

    @abstractmethod
    def _repeat(self) -> None:
        """Work and wait, again and again, until ``_stop`` is set."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Work under way is not waited for."""
        self.heartbeat.end()
        self._stop.set()


class Passes(Worker):
    """Makes a pass every few seconds. One that fails is logged, and the next one is made."""

    def __init__(self, name: str, make_pass: Callable[[], None], *, first_seconds: float = PASS_SECONDS) -> None:
        super().__init__(name, LIMIT_SECONDS)
        self._first_seconds = first_seconds
        self._make_pass = make_pass
        self._failures = Repeated(LOG)

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
                self._failures.exception("%s: a pass failed", self._thread.name)


def visit(items: Iterable[T], look: Callable[[T], None]) -> None:
    """An item that fails keeps no later one from its look. Raises the first error at the end."""
    first: Exception | None = None
    for item in items:
        try:
            look(item)
        except Exception as error:  # whatever it is: the other items do not depend on it
            first = first or error
    if first is not None:
        raise first
