"""How often and how long: the clock is a number here."""

from datetime import timedelta

import pytest
from support.values import NOON, make_change

from pinner.model.drift import Drift
from pinner.planning.flapping import LONGEST_HOLD, QUIET, Fight, marked, put_back
from pinner.planning.residents import key

CHANGE = make_change(100)
DRIFT = Drift(CHANGE.target, CHANGE.after, CHANGE.before, "unknown")


def after(seconds: float):
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("times", "seconds"), [(1, 0), (2, 0), (3, 5), (4, 10), (5, 20), (9, 320), (14, 3600), (1000, 3600)]
)
def test_holds_double_up_to_an_hour(times: int, seconds: int):
    assert Fight(times, NOON).held_until == after(seconds)
    assert timedelta(seconds=seconds) <= LONGEST_HOLD


def test_a_drift_is_marked_while_it_is_fought_over():
    fights = put_back((DRIFT,), {}, NOON)
    for _ in range(2):
        fights = put_back((DRIFT,), fights, NOON)
    (held,) = marked((DRIFT,), fights, after(4))
    assert (held.times, held.held_until) == (3, after(5))
    (free,) = marked((DRIFT,), fights, after(6))
    assert (free.times, free.held_until) == (3, None)


def test_who_gives_up_is_forgotten():
    fights = {key(DRIFT.target): Fight(3, NOON)}
    later = NOON + QUIET + timedelta(seconds=1)
    assert marked((DRIFT,), fights, later) == (DRIFT,)
    assert put_back((), fights, later) == {}
    assert put_back((DRIFT,), fights, later)[key(DRIFT.target)].times == 1


def test_a_long_hold_is_not_forgotten_before_it_has_ended_twice():
    fight = Fight(20, NOON)
    assert not fight.is_over(NOON + LONGEST_HOLD + QUIET)
    assert fight.is_over(NOON + 2 * LONGEST_HOLD + timedelta(seconds=1))


@pytest.mark.parametrize("cause", ["restarted", "arrived", "thread", "hotplug", "offline", "moved", "busy"])
def test_what_nobody_else_did_is_no_fight(cause: str):
    drift = Drift(CHANGE.target, CHANGE.after, CHANGE.before, cause)
    assert put_back((drift,), {}, NOON) == {}
    assert marked((drift,), {key(drift.target): Fight(9, NOON)}, NOON) == (drift,)
