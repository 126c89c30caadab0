"""Backs off from a target that another program moves again after each reconcile, for longer each time. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pinner.model.drift import Drift
from pinner.planning.placement.drift import OTHERS
from pinner.planning.placement.process_matching import Key, key

FREE_RETRIES = 3
"""How often a target is moved back without a delay."""

BASE_DELAY = timedelta(seconds=5)
"""The first delay after that; each further one is twice as long."""

MAX_DELAY = timedelta(hours=1)
"""The longest delay."""

FORGET_AFTER = timedelta(minutes=10)
"""A target that stays in place for this long, and for twice its last delay, starts without a delay again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a target was moved back, and when last."""

    times: int
    last: datetime

    @property
    def backoff_until(self) -> datetime:
        """The time before which the target is not moved back again."""
        return self.last + self._delay

    def is_over(self, now: datetime) -> bool:
        """Whether the target has stayed in place for long enough."""
        return now - self.last > max(FORGET_AFTER, 2 * self._delay)

    @property
    def _delay(self) -> timedelta:
        if self.times < FREE_RETRIES:
            return timedelta()
        doublings: int = min(self.times - FREE_RETRIES, 20)
        return min(BASE_DELAY * (1 << doublings), MAX_DELAY)


Backoffs = Mapping[Key, Backoff]


def with_backoff(found: tuple[Drift, ...], backoffs: Backoffs, now: datetime) -> tuple[Drift, ...]:
    """The drifts, each with how often it was moved back already, and with the end of its back-off."""
    return tuple(
        _with_backoff(drift, backoffs[key(drift.target)], now) if _is_contested(drift, backoffs) else drift
        for drift in found
    )


def after_reconcile(found: tuple[Drift, ...], backoffs: Backoffs, now: datetime) -> dict[Key, Backoff]:
    """The back-offs after a reconcile of these drifts."""
    counted = forget(backoffs, now)
    for drift in found:
        if drift.cause in OTHERS:
            times = counted[key(drift.target)].times if key(drift.target) in counted else 0
            counted[key(drift.target)] = Backoff(times + 1, now)
    return counted


def forget(backoffs: Backoffs, now: datetime) -> dict[Key, Backoff]:
    """The back-offs without those that are over."""
    return {target: backoff for target, backoff in backoffs.items() if not backoff.is_over(now)}


def _is_contested(drift: Drift, backoffs: Backoffs) -> bool:
    return drift.cause in OTHERS and key(drift.target) in backoffs


def _with_backoff(drift: Drift, backoff: Backoff, now: datetime) -> Drift:
    if backoff.is_over(now):
        return drift
    return replace(
        drift, times=backoff.times, backoff_until=backoff.backoff_until if backoff.backoff_until > now else None
    )
