"""Heartbeats of threads that must go on until their server ends."""

import math
import threading
import time
from collections.abc import Callable, Iterable


class Heartbeat:
    """The thread calls ``beat`` in its loop, and ``end`` before it ends on purpose."""

    def __init__(
        self, thread: threading.Thread, limit: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``limit``: the thread hangs if it has not beaten for so many seconds; infinite where it may wait for ever."""
        self.name = thread.name
        self._thread = thread
        self._limit = limit
        self._clock = clock
        self._last = clock()
        self._ended = False

    def beat(self) -> None:
        self._last = self._clock()

    def end(self) -> None:
        self._ended = True

    @property
    def has_died(self) -> bool:
        """Whether the thread has ended, and not on purpose."""
        return not self._ended and self._thread.ident is not None and not self._thread.is_alive()

    @property
    def wrong(self) -> str:
        """Why the thread does not do its work, for people; empty: it does."""
        if self.has_died:
            return f"the thread {self.name} has ended"
        silent = self._clock() - self._last
        if self._ended or self._thread.ident is None or silent <= self._limit:
            return ""
        return f"the thread {self.name} has made no progress for {silent:.0f} s"


class BeatingThread(threading.Thread):
    """It does not keep the process from its end."""

    def __init__(self, work: Callable[[], None], name: str, limit: float = math.inf) -> None:
        """``limit``: see Heartbeat."""
        super().__init__(target=work, name=name, daemon=True)
        self.heartbeat = Heartbeat(self, limit)


def wrong(heartbeats: Iterable[Heartbeat]) -> tuple[str, ...]:
    return tuple(heartbeat.wrong for heartbeat in heartbeats if heartbeat.wrong)
