"""Somebody else moves back what is put right: noticed by counting, and backed off from ever longer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pinner.model.drift import Drift
from pinner.planning.drift import OTHERS
from pinner.planning.residents import Key, key

PATIENCE = 3
"""How often a target is put back at once."""

FIRST_HOLD = timedelta(seconds=5)
"""How long it is left after that; twice as long after each further time."""

LONGEST_HOLD = timedelta(hours=1)

QUIET = timedelta(minutes=10)
"""A target that stays put for so long, and for twice its last hold, is no longer fought over."""


@dataclass(frozen=True, slots=True)
class Fight:
    """How often a target was put back, and when last."""

    times: int
    last: datetime

    @property
    def held_until(self) -> datetime:
        """Until when it is left where it is now."""
        return self.last + self._hold

    def is_over(self, now: datetime) -> bool:
        """Whether the other side gave up."""
        return now - self.last > max(QUIET, 2 * self._hold)

    @property
    def _hold(self) -> timedelta:
        if self.times < PATIENCE:
            return timedelta()
        doublings: int = min(self.times - PATIENCE, 20)
        return min(FIRST_HOLD * (1 << doublings), LONGEST_HOLD)


Fights = Mapping[Key, Fight]


def marked(found: tuple[Drift, ...], fights: Fights, now: datetime) -> tuple[Drift, ...]:
    """The drifts with how often each was put back already, and until when it is left."""
    return tuple(_marked(drift, fights[key(drift.target)], now) if _fought(drift, fights) else drift for drift in found)


def put_back(found: tuple[Drift, ...], fights: Fights, now: datetime) -> dict[Key, Fight]:
    """The fights after these drifts were ended; those that are over are forgotten."""
    going_on = {target: fight for target, fight in fights.items() if not fight.is_over(now)}
    for drift in found:
        if drift.cause in OTHERS:
            times = going_on[key(drift.target)].times if key(drift.target) in going_on else 0
            going_on[key(drift.target)] = Fight(times + 1, now)
    return going_on


def _fought(drift: Drift, fights: Fights) -> bool:
    return drift.cause in OTHERS and key(drift.target) in fights


def _marked(drift: Drift, fight: Fight, now: datetime) -> Drift:
    if fight.is_over(now):
        return drift
    return replace(drift, times=fight.times, held_until=fight.held_until if fight.held_until > now else None)
