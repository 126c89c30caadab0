"""SharedCalls, and the hosts that use it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.server.real_service import real_service

from pinner.model.errors import Overloaded
from pinner.service.hosts.hosts import MEASUREMENTS, MEASURING_CALLERS, SharedCalls

pytestmark = pytest.mark.fault(45)


class SlowCall:
    """A function that waits until ``go_on`` is set, and returns the number of its call."""

    def __init__(self):
        self.began = 0
        self.go_on = threading.Event()

    def __call__(self, *_):
        self.began += 1
        number = self.began
        assert self.go_on.wait(60)
        return number


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_callers_that_wait_share_a_call_that_begins_after_they_asked():
    shared, slow = SharedCalls(1), SlowCall()
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(shared.call, None, slow)
        eventually(lambda: slow.began == 1)
        others = [pool.submit(shared.call, None, slow) for _ in range(10)]
        time.sleep(0.1)
        slow.go_on.set()
        assert first.result(10) == 1
        assert {other.result(10) for other in others} == {2}
    assert slow.began == 2


def test_callers_of_different_calls_do_not_share():
    shared = SharedCalls(1)
    assert (shared.call("a", lambda: 1), shared.call("b", lambda: 2)) == (1, 2)


def test_every_caller_gets_the_error_and_the_next_call_is_a_new_one():
    def fail():
        raise ValueError("no")

    shared = SharedCalls(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            shared.call(None, fail)
    assert shared.call(None, lambda: 1) == 1


def test_no_more_calls_than_allowed_run_at_once():
    shared, slow = SharedCalls(2), SlowCall()
    with ThreadPoolExecutor(10) as pool:
        calls = [pool.submit(shared.call, key, slow) for key in range(5)]
        time.sleep(0.2)
        assert slow.began == 2
        slow.go_on.set()
        assert sorted(call.result(10) for call in calls) == [1, 2, 3, 4, 5]


def test_long_measurements_are_bounded_and_do_not_delay_scans(tmp_path, monkeypatch):
    with real_service(tmp_path) as (service, agent), ThreadPoolExecutor(20) as pool:
        slow, take = SlowCall(), agent.snapshot

        def measure(seconds):
            if seconds:
                slow()
            return take(seconds)

        monkeypatch.setattr(agent, "snapshot", measure)
        calls = [pool.submit(service.observe, "compute1", 300.0 - n) for n in range(16)]
        eventually(lambda: sum(call.done() for call in calls) == 16 - MEASURING_CALLERS)
        refused = [call.exception() for call in calls if call.done()]
        assert all(isinstance(error, Overloaded) and error.details["retry_after"] > 0 for error in refused)
        assert slow.began == MEASUREMENTS
        assert service.observe("compute1", 0.0).host
        slow.go_on.set()
        assert sum(call.exception(10) is None for call in calls) == MEASURING_CALLERS


def test_equal_measurements_share_one(tmp_path, monkeypatch):
    with real_service(tmp_path) as (service, agent), ThreadPoolExecutor(20) as pool:
        slow, take = SlowCall(), agent.snapshot
        monkeypatch.setattr(agent, "snapshot", lambda seconds: slow() and take(seconds))
        calls = [pool.submit(service.observe, "compute1", 2.0) for _ in range(MEASURING_CALLERS)]
        time.sleep(0.2)
        slow.go_on.set()
        assert len({id(call.result(10).topology) for call in calls}) == 1
        assert slow.began <= MEASUREMENTS + 1


def test_the_topology_is_read_without_a_scan(tmp_path):
    with real_service(tmp_path) as (service, agent):
        assert service.topology("compute1") == agent.host.taken.topology
        assert agent.host.samples == []
