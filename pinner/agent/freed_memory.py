"""Keeps glibc's heap small: one heap (mallopt(3)), and freed memory goes back to the kernel (malloc_trim(3))."""

import ctypes
from contextlib import suppress

from pinner.worker import Worker

SECONDS = 300.0
_LIMIT_SECONDS = SECONDS + 60.0
_M_ARENA_MAX = -8


class FreedMemory(Worker):
    def __init__(self) -> None:
        super().__init__("freed memory", _LIMIT_SECONDS)

    def _repeat(self) -> None:
        while not self._stop.wait(SECONDS):
            self.heartbeat.beat()
            give_back()


def give_back() -> None:
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def use_one_heap() -> None:
    """glibc gives new threads heaps, which only grow; in Python, where one thread runs at a time, they bring no
    speed."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
