"""How often a policy tried to place a target in vain, and when it tries again."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pinner.model.change import TargetKey
from pinner.model.doubling import doubled

FREE_RETRIES = 3
"""Times that a moved target is moved back without a delay."""

FREE_RESTARTS = 300
"""Times that new processes of one name are placed without a delay."""

BASE_DELAY = timedelta(seconds=5)
"""After that, or after a failure; each further one is twice as long."""

MAX_DELAY = timedelta(hours=1)

MAX_RESTART_DELAY = timedelta(minutes=1)
"""For a process that starts again and again: a run for each start would fill the disk."""

FORGET_AFTER = timedelta(minutes=10)
"""A target in place for this long, and for twice its last delay, starts without a delay again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    times: int
    last: datetime
    error: str = ""
    """Of the last attempt; empty: the target was placed."""
    restarts: bool = False
    """Processes of one name were started anew; else it is one target that was moved or that failed."""

    @property
    def backoff_until(self) -> datetime:
        return self.last + self._delay

    def is_over(self, now: datetime) -> bool:
        """Whether the target has stayed in place for long enough."""
        return now - self.last > max(FORGET_AFTER, 2 * self._delay)

    @property
    def _delay(self) -> timedelta:
        most = MAX_RESTART_DELAY if self.restarts else MAX_DELAY
        if self.times < self.free:
            return timedelta()
        return doubled(BASE_DELAY, self.times - self.free, most)

    @property
    def free(self) -> int:
        """From this number of times on there is a delay."""
        return FREE_RESTARTS if self.restarts else 1 if self.error else FREE_RETRIES


Backoffs = Mapping[TargetKey, Backoff]
"""Of contested targets by kind, owner and part; of failed groups by Group."""
