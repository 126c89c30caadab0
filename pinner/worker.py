"""Worker: a part of a server that works in a thread of its own until it is stopped."""

import math
import threading
from abc import ABC, abstractmethod

from pinner.heartbeat import BeatingThread


class Worker(ABC):
    """Start it once, and stop it once."""

    def __init__(self, name: str, limit: float = math.inf) -> None:
        """``name`` is the name of the thread. Between two beats of its heart lie at most ``limit`` seconds."""
        self._stop = threading.Event()
        self._thread = BeatingThread(self._repeat, name, limit)
        self.heartbeat = self._thread.heartbeat

    @abstractmethod
    def _repeat(self) -> None:
        """Work and wait, again and again, until ``_stop`` is set."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; work under way is not waited for."""
        self.heartbeat.end()
        self._stop.set()
