"""Backoffs: how often a policy tried to place a target in vain, and when it tries again."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pinner.model.change import TargetKey

FREE_RETRIES = 3
"""How often a target that another program moves is moved back without a delay."""

BASE_DELAY = timedelta(seconds=5)
"""The first delay after that, or after a failure; each further one is twice as long."""

MAX_DELAY = timedelta(hours=1)
"""The longest delay."""

FORGET_AFTER = timedelta(minutes=10)
"""A target that stays in place for this long, and for twice its last delay, starts without a delay again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a target was moved back, or could not be placed, and when last."""

    times: int
    last: datetime
    error: str = ""
    """Why the last attempt failed; empty: the target was placed."""

    @property
    def backoff_until(self) -> datetime:
        """The time before which the policy does not try again."""
        return self.last + self._delay

    def is_over(self, now: datetime) -> bool:
        """Whether the target has stayed in place for long enough."""
        return now - self.last > max(FORGET_AFTER, 2 * self._delay)

    @property
    def _delay(self) -> timedelta:
        free = 1 if self.error else FREE_RETRIES
        if self.times < free:
            return timedelta()
        doublings: int = min(self.times - free, 20)
        return min(BASE_DELAY * (1 << doublings), MAX_DELAY)


Backoffs = Mapping[TargetKey, Backoff]
"""The backoffs of a host: of contested targets by kind, owner and part, and of failed groups by Group."""
