"""Counts waits, because their seconds would depend on the machine's load."""

import threading
from concurrent.futures import Future
from typing import Any


class Waits:
    """The waits for calls of libvirt that have ended with a timeout."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.together: threading.Barrier | None = None
        """Where it is set, so many waits must end at the same time."""

    def future(self) -> "Future[Any]":
        """In place of concurrent.futures.Future in the module that makes the calls."""
        return _Counted(self)

    def ended(self, seconds: float) -> None:
        self.timeouts.append(seconds)
        if self.together:
            self.together.wait(60)


class _Counted(Future[Any]):
    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self._waits = waits

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        except TimeoutError:
            if timeout:
                self._waits.ended(timeout)
            raise
