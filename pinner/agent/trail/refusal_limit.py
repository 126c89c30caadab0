"""Limits the records of refused runs and of calls that do nothing, so that nobody fills the disk with them."""

import threading
import time
from collections.abc import Callable

from pinner.agent.socket.peers import calling_user
from pinner.model.errors import Busy

MAX_REFUSALS = 60
"""Refusals in a window that get a record each."""
WINDOW_SECONDS = 60.0
"""A window starts with an event."""

MAX_IDLE = 60
"""Calls in a window that did nothing, and are accepted and recorded."""


class _Window:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends = 0.0
        self._count = 0

    def add(self) -> int:
        if (now := self._clock()) >= self._ends:
            self._ends, self._count = now + WINDOW_SECONDS, 0
        self._count += 1
        return self._count

    def count(self) -> int:
        return self._count if self._clock() < self._ends else 0


class RefusalLimit:
    """Several threads may use one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = _Window(clock)
        self._guard = threading.Lock()
        self._left_out = 0

    def add(self) -> bool:
        with self._guard:
            if self._window.add() <= MAX_REFUSALS:
                return True
            self._left_out += 1
            return False

    def take_left_out(self) -> int:
        """The refusals without a record in windows that have ended; reported once."""
        with self._guard:
            if self._window.count():
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out


class CallLimit:
    """A window for each user, so that nobody uses up root's. Several threads may use it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most: int = MAX_IDLE, what: str = "did nothing"
    ) -> None:
        """``most`` calls of a window are let through; ``what`` they did."""
        self._clock = clock
        self._most = most
        self._what = what
        self._guard = threading.Lock()
        self._windows: dict[tuple[int, str], _Window] = {}
        """The key has the caller's user id."""

    def add(self, subject: str = "") -> None:
        """The calls of each ``subject`` are counted apart."""
        with self._guard:
            self._windows = {key: window for key, window in self._windows.items() if window.count()}
            self._windows.setdefault((calling_user(), subject), _Window(self._clock)).add()

    def is_full(self, subject: str = "") -> bool:
        with self._guard:
            window = self._windows.get((calling_user(), subject))
            return window is not None and window.count() >= self._most

    def require(self, subject: str = "") -> None:
        """Raises Busy."""
        if self.is_full(subject):
            why = f"{self._most} calls of the last {WINDOW_SECONDS:g} s {self._what}"
            raise Busy("the agent", why, overdue=False)
