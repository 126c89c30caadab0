"""The controller rests between reconciles, so that they take at most a third of the time."""

import itertools
import time

import pytest
from support.fakes.kept_policies import running_controller

from pinner.model.policy import DriftReport
from pinner.service.reconcile import controller as controller_module
from pinner.service.reconcile.controller import PolicyController


def test_a_flood_of_events_costs_at_most_a_third_of_the_time(policies, monkeypatch):
    reconcile = policies.reconcile

    def slow(*call, **options):
        time.sleep(0.05)
        policies.event_queue.publish("process-started", "1")
        return reconcile(*call, **options)

    monkeypatch.setattr(policies, "reconcile", slow)
    with running_controller(policies):
        policies.wait(15)  # those of the credit, and more
        began, reconciles = time.monotonic(), len(policies.reconciles)
        time.sleep(1.0)
        busy = 0.05 * (len(policies.reconciles) - reconciles) / (time.monotonic() - began)
    assert 0 < busy < 0.4


class Stop:
    """The controller's clock and its event to stop: a wait takes no time, and ``stop_at`` ends the controller."""

    def __init__(self, stop_at: float) -> None:
        self.now, self._stop_at = 0.0, stop_at

    def is_set(self) -> bool:
        return self.now >= self._stop_at

    def set(self) -> None:
        self._stop_at = 0.0

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()


@pytest.fixture
def slow(policies, monkeypatch):
    """Makes a controller without a thread, whose reconciles take some seconds of its clock; and the waits between the
    end of each reconcile and the next one."""

    def made(seconds: float, resync: float, *, event: str = "", **more):
        stop, begun = Stop(1000.0), []
        reconcile = policies.reconcile

        def slowly(*call, **options):
            begun.append(stop.now)
            stop.now += seconds
            if event:
                policies.event_queue.publish(event, "1")
            return reconcile(*call, **options)

        monkeypatch.setattr(policies, "reconcile", slowly)
        controller = PolicyController(
            policies, "h1", resync_seconds=resync, measure_seconds=60.0, clock=lambda: stop.now, **more
        )
        monkeypatch.setattr(controller, "_stop", stop)
        return controller, lambda: [round(later - sooner - seconds, 6) for sooner, later in itertools.pairwise(begun)]

    return made


def test_an_event_in_a_rest_is_reconciled_at_the_end_of_the_rest(slow):
    """The rest collects the burst: no further wait follows. The latency in the metrics begins with the event."""
    noted = []

    class Metrics:
        def reconciled(self, report: DriftReport, seconds: float | None) -> None:
            noted.append(seconds)

        def reconcile_failed(self, host: str) -> None:
            pass

        def policy_deleted(self, host: str) -> None:
            pass

    controller, waits = slow(0.1, 60.0, event="process-started", metrics=Metrics())
    for _ in range(8):
        controller._wait_for_events()
    assert waits() == [0.01] * 5 + [0.15] + [0.2] * 2, "a rest begins where the credit is spent"
    assert [round(seconds, 6) for seconds in noted] == [0.1, *(round(wait + 0.1, 6) for wait in waits())]


def test_events_are_collected_until_none_follows_soon(policies, monkeypatch):
    """Each wait of the controller brings one more event; only so many come."""
    stop = Stop(5.0)
    left = [3]

    def wait(seconds: float) -> bool:
        if left[0]:
            left[0] -= 1
            policies.event_queue.publish("process-started", str(left[0]))
        return Stop.wait(stop, seconds)

    controller = PolicyController(policies, "h1", resync_seconds=60.0, measure_seconds=60.0, clock=lambda: stop.now)
    monkeypatch.setattr(controller, "_stop", stop)
    controller._wait_for_events()
    policies.event_queue.publish("process-started", "first")
    began = stop.now
    monkeypatch.setattr(stop, "wait", wait)
    left[0] = 2
    controller._wait_for_events()
    assert round(stop.now - began, 6) == 0.03, "one pause without an event"
    left[0] = 100
    policies.event_queue.publish("process-started", "first")
    began = stop.now
    controller._wait_for_events()
    assert round(stop.now - began, 6) == 0.05, "never longer"
    assert len(policies.reconciles) == 3


def test_reconciles_that_take_less_than_their_share_are_never_followed_by_a_rest(slow, policies):
    controller, waits = slow(0.1, 600.0)
    for _ in range(50):
        controller._wait_for_events()
        controller._stop.now += 0.19  # and the pause of 0.01 after the event
        policies.event_queue.publish("process-started", "1")
    assert set(waits()) == {0.2}


def test_a_reconcile_that_takes_long_is_followed_by_no_longer_rest(slow):
    controller, waits = slow(30.0, 0.0)
    for _ in range(4):
        controller._wait_for_events()
    assert set(waits()) == {0.5}


def test_a_resync_waits_for_the_end_of_a_rest(slow):
    controller, waits = slow(0.1, 0.0)
    for _ in range(8):
        controller._wait_for_events()
    assert waits() == [0.0] * 5 + [0.2] * 3


def test_stopping_does_not_wait_for_events(policies, monkeypatch):
    monkeypatch.setattr(controller_module, "POLL_SECONDS", 60.0)
    with running_controller(policies) as controller:
        policies.wait(1)
        began = time.monotonic()
        controller.stop()
        assert time.monotonic() - began < controller_module.POLL_SECONDS / 2
    policies.event_queue.close()
