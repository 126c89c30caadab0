"""Somebody else moves back what is put right: noticed by counting, and backed off from ever longer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pinner.model.drift import Drift
from pinner.planning.placement.drift import OTHERS
from pinner.planning.placement.process_matching import Key, key

FREE_RETRIES = 3
"""How often a target is put back at once."""

BASE_DELAY = timedelta(seconds=5)
"""How long it is left after that; twice as long after each further time."""

MAX_DELAY = timedelta(hours=1)

QUIET = timedelta(minutes=10)
"""A target that stays put for so long, and for twice its last hold, is no longer fought over."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a target was put back, and when last."""

    times: int
    last: datetime

    @property
    def backoff_until(self) -> datetime:
        """Until when it is left where it is now."""
        return self.last + self._delay

    def is_over(self, now: datetime) -> bool:
        """Whether the other side gave up."""
        return now - self.last > max(QUIET, 2 * self._delay)

    @property
    def _delay(self) -> timedelta:
        if self.times < FREE_RETRIES:
            return timedelta()
        doublings: int = min(self.times - FREE_RETRIES, 20)
        return min(BASE_DELAY * (1 << doublings), MAX_DELAY)


Backoffs = Mapping[Key, Backoff]


def with_backoff(found: tuple[Drift, ...], backoffs: Backoffs, now: datetime) -> tuple[Drift, ...]:
    """The drifts with how often each was put back already, and until when it is left."""
    return tuple(
        _with_backoff(drift, backoffs[key(drift.target)], now) if _is_contested(drift, backoffs) else drift
        for drift in found
    )


def after_reconcile(found: tuple[Drift, ...], backoffs: Backoffs, now: datetime) -> dict[Key, Backoff]:
    """The fights after these drifts were ended; those that are over are forgotten."""
    going_on = {target: backoff for target, backoff in backoffs.items() if not backoff.is_over(now)}
    for drift in found:
        if drift.cause in OTHERS:
            times = going_on[key(drift.target)].times if key(drift.target) in going_on else 0
            going_on[key(drift.target)] = Backoff(times + 1, now)
    return going_on


def _is_contested(drift: Drift, backoffs: Backoffs) -> bool:
    return drift.cause in OTHERS and key(drift.target) in backoffs


def _with_backoff(drift: Drift, backoff: Backoff, now: datetime) -> Drift:
    if backoff.is_over(now):
        return drift
    return replace(
        drift, times=backoff.times, backoff_until=backoff.backoff_until if backoff.backoff_until > now else None
    )
