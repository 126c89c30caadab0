"""Gives freed memory back to the kernel: glibc keeps what a thread has freed, after thousands of calls more than the
agent uses."""

import ctypes
from contextlib import suppress

from pinner.worker import Worker

SECONDS = 300.0
_LIMIT_SECONDS = SECONDS + 60.0


class FreedMemory(Worker):
    def __init__(self) -> None:
        super().__init__("freed memory", _LIMIT_SECONDS)

    def _repeat(self) -> None:
        while not self._stop.wait(SECONDS):
            self.heartbeat.beat()
            give_back()


def give_back() -> None:
    """malloc_trim(3), where the C library has it."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
