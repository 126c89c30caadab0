"""The backoff from targets that another program moves again. The tests pass the time as a number."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.values import NOON, make_change

from pinner.model.change import Target, group_of
from pinner.model.cpuset import CpuSet
from pinner.model.machine.interrupts import Balancer
from pinner.model.policy import BASE_DELAY, FORGET_AFTER, FREE_RESTARTS, MAX_DELAY, MAX_RESTART_DELAY, Backoff, Drift
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.planning.policy.backoff_counts import (
    after_failures,
    after_reconcile,
    counted_as,
    forget,
    reasons,
    with_backoff,
)

CHANGE = make_change(100)
DRIFT = Drift(CHANGE.target, CHANGE.after, CHANGE.before, "unknown")


def after(seconds: float):
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("times", "seconds"), [(1, 0), (2, 0), (3, 5), (4, 10), (5, 20), (9, 320), (14, 3600), (1000, 3600)]
)
def test_the_delay_doubles_up_to_an_hour(times: int, seconds: int):
    assert Backoff(times, NOON).backoff_until == after(seconds)
    assert timedelta(seconds=seconds) <= MAX_DELAY


def test_a_drift_has_the_end_of_its_back_off_until_that_time():
    backoffs = after_reconcile((DRIFT,), {}, NOON)
    for _ in range(2):
        backoffs = after_reconcile((DRIFT,), backoffs, NOON)
    (delayed,) = with_backoff((DRIFT,), backoffs, after(4))
    assert (delayed.times, delayed.backoff_until) == (3, after(5))
    (free,) = with_backoff((DRIFT,), backoffs, after(6))
    assert (free.times, free.backoff_until) == (3, None)


def test_a_target_that_stays_in_place_long_enough_is_forgotten():
    backoffs = {DRIFT.target.key: Backoff(3, NOON)}
    later = NOON + FORGET_AFTER + timedelta(seconds=1)
    assert with_backoff((DRIFT,), backoffs, later) == (DRIFT,)
    assert after_reconcile((), backoffs, later) == {}
    assert after_reconcile((DRIFT,), backoffs, later)[DRIFT.target.key].times == 1


def test_a_long_delay_is_forgotten_only_after_twice_that_time():
    backoff = Backoff(20, NOON)
    assert not backoff.is_over(NOON + MAX_DELAY + FORGET_AFTER)
    assert backoff.is_over(NOON + 2 * MAX_DELAY + timedelta(seconds=1))


@pytest.mark.fault(57)
def test_processes_that_are_started_again_and_again_are_counted_by_their_name():
    """Each one has an id of its own, so that a wait for one of them would never hold the next one."""
    backoffs = {}
    for number in range(FREE_RESTARTS):
        target = Target("process", str(1000 + number), 77 + number, "looping")
        drift = Drift(target, CHANGE.after, CHANGE.before, "restarted")
        (now,) = with_backoff((drift,), backoffs, NOON)
        assert (now.times, now.backoff_until) == (number, None)
        backoffs = after_reconcile((drift, drift), backoffs, NOON)
    (held,) = with_backoff((drift,), backoffs, NOON)
    assert (held.times, held.backoff_until) == (FREE_RESTARTS, NOON + BASE_DELAY)
    assert reasons((held,)) == {
        target.key: "it is in backoff, because processes of its name are started again and again"
    }
    other = replace(drift, target=replace(target, name="steady"))
    assert with_backoff((other,), backoffs, NOON) == (other,)
    assert replace(backoffs[counted_as(drift)], times=10_000).backoff_until == NOON + MAX_RESTART_DELAY


@pytest.mark.parametrize("cause", ["arrived", "thread", "hotplug", "offline", "moved", "busy"])
def test_a_drift_that_no_other_program_caused_gets_no_back_off(cause: str):
    drift = Drift(CHANGE.target, CHANGE.after, CHANGE.before, cause)
    assert after_reconcile((drift,), {}, NOON) == {}
    assert with_backoff((drift,), {drift.target.key: Backoff(9, NOON)}, NOON) == (drift,)


@pytest.mark.parametrize(("times", "seconds"), [(1, 5), (2, 10), (3, 20), (11, 3600), (1000, 3600)])
def test_a_failure_is_followed_by_a_delay_at_once(times: int, seconds: int):
    assert Backoff(times, NOON, "no answer").backoff_until == after(seconds)


@pytest.mark.fault(47)
def test_a_failure_is_the_cause_of_every_drift_of_its_guest_until_it_is_tried_again():
    vcpus = (Target("vcpu", "uuid", number, "g1") for number in (0, 1))
    drifts = tuple(Drift(each, CHANGE.after, CHANGE.before, "arrived") for each in vcpus)
    backoffs = after_failures({group_of(drifts[0].target): "no answer"}, {}, NOON)
    delayed = with_backoff((*drifts, DRIFT), backoffs, after(4))
    assert [(each.cause, each.detail, each.times, each.backoff_until) for each in delayed[:2]] == [
        ("failed", "no answer", 1, after(5))
    ] * 2
    assert delayed[2] == DRIFT
    tried = with_backoff(drifts, backoffs, after(5))
    assert [(each.cause, each.detail, each.times, each.backoff_until) for each in tried] == [
        ("arrived", "", 1, None)
    ] * 2
    again = after_failures({group_of(drifts[0].target): "no answer"}, backoffs, after(5))
    assert with_backoff(drifts, again, after(6))[0].backoff_until == after(15)
    placed = after_reconcile(drifts, again, after(15))
    assert with_backoff(drifts, placed, after(16)) == drifts


def test_a_step_of_the_clock_backwards_delays_no_longer_than_the_delay():
    backoffs = {DRIFT.target.key: Backoff(1000, NOON), ("guest", "g1", None): Backoff(1, NOON, "no answer")}
    earlier = NOON - timedelta(days=1)
    current = forget(backoffs, earlier)
    assert [each.backoff_until for each in current.values()] == [earlier + MAX_DELAY, earlier + BASE_DELAY]
    assert forget(current, earlier) == current


@pytest.mark.fault(55)
def test_a_clock_that_is_set_back_by_a_day_lengthens_no_delay():
    """The last time lies in the future then, and counts as now: once, and not again at each observation."""
    backoffs = forget({DRIFT.target.key: Backoff(3, after(86_400))}, NOON)
    (delayed,) = with_backoff((DRIFT,), backoffs, NOON)
    assert delayed.backoff_until == after(5)
    backoffs = forget(backoffs, after(6))
    (free,) = with_backoff((DRIFT,), backoffs, after(6))
    assert free.backoff_until is None


def test_a_target_in_backoff_is_skipped_with_the_true_reason():
    failed = after_failures({group_of(DRIFT.target): "its QEMU hangs"}, {}, NOON)
    assert reasons(with_backoff((DRIFT,), failed, after(1))) == {
        DRIFT.target.key: "it is in backoff, because it could not be placed: its QEMU hangs"
    }
    contested = {DRIFT.target.key: Backoff(3, NOON)}
    assert reasons(with_backoff((DRIFT,), contested, after(1))) == {
        DRIFT.target.key: "it is in backoff, because another program moves it again each time"
    }
    assert reasons((DRIFT,)) == {}


def anew(kind, number):
    """The drift of irqbalance, or of a queue of a guest, that is started for the nth time."""
    if kind == "irqbalance":
        target = Balancer(1000 + number, "", None, 77 + number).target
    else:
        target = GuestRps("uuid", "g1", f"boot{number}").target(GuestQueue("eth0", 2, 0, CpuSet()))
    return Drift(target, CpuSet(), (), "restarted")


@pytest.mark.parametrize(
    ("kind", "words"), [("irqbalance", "it is started again"), ("guest_rps", "its guest is started again")]
)
def test_a_setting_that_ends_with_its_owner_again_and_again_backs_off(kind, words):
    """A guest may also tell another boot in each answer: each look of the policy would be a run, for ever."""
    backoffs, now, runs = {}, NOON, 0
    for number in range(24 * 60):
        now += timedelta(minutes=1)
        (drift,) = with_backoff((anew(kind, number),), backoffs, now)
        if drift.backoff_until:
            assert words in reasons((drift,))[drift.target.key]
            continue
        backoffs, runs = after_reconcile((drift,), backoffs, now), runs + 1
    assert runs < 40
    assert len(backoffs) == 1
    other = replace(anew("guest_rps", 1), target=replace(anew("guest_rps", 1).target, owner="other boot eth0 2"))
    assert with_backoff((other,), backoffs, now) == (other,)
