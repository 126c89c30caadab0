"""Backoffs: how often a policy tried to place a target in vain, and when it tries again."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pinner.model.change import TargetKey
from pinner.model.doubling import doubled

FREE_RETRIES = 3
"""How often a target that another program moves is moved back without a delay."""

FREE_RESTARTS = 300
"""How often processes of one name that are started anew are placed without a delay."""

BASE_DELAY = timedelta(seconds=5)
"""The first delay after that, or after a failure; each further one is twice as long."""

MAX_DELAY = timedelta(hours=1)
"""The longest delay."""

MAX_RESTART_DELAY = timedelta(minutes=1)
"""The longest delay of a process that is started anew again and again: a run for each start would fill the disk."""

FORGET_AFTER = timedelta(minutes=10)
"""A target that stays in place for this long, and for twice its last delay, starts without a delay again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a target was moved back, or could not be placed, and when last."""

    times: int
    last: datetime
    error: str = ""
    """Why the last attempt failed; empty: the target was placed."""
    restarts: bool = False
    """Whether processes of one name were started anew; else it is one target that was moved or that failed."""

    @property
    def backoff_until(self) -> datetime:
        """The time before which the policy does not try again."""
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
"""The backoffs of a host: of contested targets by kind, owner and part, and of failed groups by Group."""
