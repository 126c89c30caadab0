"""Slows down the callers whose credentials fail again and again."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TTLCache

FREE_FAILURES = 5
"""Failures that have no consequence, for a person who takes the wrong token."""
LONGEST_SECONDS = 60.0
FORGET_SECONDS = 900.0
"""A key without a failure for this long starts anew."""
MAX_KEYS = 4096
"""Keys in memory; the key that failed least recently makes room for a new one."""


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    until: float


class Throttle:
    """Failures by key, and the time until which a key has to wait: 1, 2, 4 ... LONGEST_SECONDS.

    It never sleeps: its callers answer at once with the seconds to wait. ``clock`` gives seconds that only increase.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: TTLCache[str, _Failures] = TTLCache(MAX_KEYS, FORGET_SECONDS, timer=clock)
        self._guard = threading.Lock()

    def wait(self, key: str) -> float:
        """The seconds that the key has to wait; 0 where it may go on."""
        with self._guard:
            found = self._failures.get(key)
            return max(0.0, found.until - self._clock()) if found else 0.0

    def failed(self, key: str) -> float:
        """Count a failure; returns the seconds that the key has to wait now, 0 while its failures are free.

        A failure while the key waits does not make the wait longer.
        """
        with self._guard:
            now = self._clock()
            found = self._failures.get(key, _Failures(0, now))
            if found.until <= now:
                count = found.count + 1
                # The exponent is bounded, so that years of failures do not make a number that no float holds.
                seconds = min(2.0 ** min(count - FREE_FAILURES - 1, 30), LONGEST_SECONDS)
                found = _Failures(count, now + seconds if count > FREE_FAILURES else now)
            self._failures[key] = found
            return found.until - now
