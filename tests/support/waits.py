"""Counts waits, because their seconds would depend on the machine's load."""

import threading
from collections.abc import Collection
from concurrent.futures import Future, wait
from typing import Any


class Waits:
    """The waits for calls of libvirt that have ended with a timeout."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.together: threading.Barrier | None = None
        """Where it is set, so many waits must end at the same time."""

    def wait(self, futures: Collection[Future[Any]], timeout: float | None = None) -> Any:
        """concurrent.futures.wait."""
        done = wait(futures, timeout)
        if timeout and done.not_done:
            self.timeouts.append(timeout)
            if self.together:
                self.together.wait(60)
        return done
