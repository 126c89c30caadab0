import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from pinner.model.errors import PinnerError
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

T = TypeVar("T")

PASS_SECONDS = 5.0
LIMIT_SECONDS = 120.0
"""The longest pass."""


class Heartbeat:
    """The thread calls ``beat`` in its loop, and ``end`` before it ends on purpose."""

    def __init__(self, thread: threading.Thread, limit: float = math.inf) -> None:
        """``limit``: seconds without a beat after which the thread hangs; infinite where it may wait for ever."""
        self.name = thread.name
        self._thread = thread
        self._limit = limit
        self._last = time.monotonic()
        self._ended = False

    def beat(self) -> None:
        self._last = time.monotonic()

    def end(self) -> None:
        self._ended = True

    @property
    def has_died(self) -> bool:
        return not self._ended and self._thread.ident is not None and not self._thread.is_alive()

    @property
    def wrong(self) -> str:
        """For people; empty: the thread does its work."""
        if self.has_died:
            return f"the thread {self.name} has ended"
        silent = time.monotonic() - self._last
        if self._ended or self._thread.ident is None or silent <= self._limit:
            return ""
        return f"the thread {self.name} has made no progress for {silent:.0f} s"


class BeatingThread(threading.Thread):
    """It does not keep the process from its end."""

    def __init__(self, work: Callable[[], None], name: str, limit: float = math.inf) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self.heartbeat = Heartbeat(self, limit)


def wrong(heartbeats: Iterable[Heartbeat]) -> tuple[str, ...]:
    return tuple(heartbeat.wrong for heartbeat in heartbeats if heartbeat.wrong)


class Worker(ABC):
    """Start it once, and stop it once."""

    def __init__(self, name: str, limit: float = math.inf) -> None:
        self._stop = threading.Event()
        self._thread = BeatingThread(self._repeat, name, limit)
        self.heartbeat = self._thread.heartbeat

    @abstractmethod
    def _repeat(self) -> None:
        """Work and wait until ``_stop`` is set."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Work under way is not waited for."""
        self.heartbeat.end()
        self._stop.set()


class Passes(Worker):
    """Makes a pass every few seconds, also after one that failed and was logged."""

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
