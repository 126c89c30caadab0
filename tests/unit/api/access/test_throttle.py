from pinner.api.access import credentials
from pinner.api.access.credentials import FORGET_SECONDS, FREE_FAILURES, LONGEST_SECONDS, Throttle


class Seconds:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def fail(slow, times, key="a"):
    return [slow.failed(key) for _ in range(times)]


def test_a_few_failures_are_free():
    slow = Throttle(Seconds())
    assert fail(slow, FREE_FAILURES) == [0.0] * FREE_FAILURES
    assert slow.wait("a") == 0.0
    assert slow.failed("a") == 1.0
    assert (slow.wait("a"), slow.wait("b")) == (1.0, 0.0)


def test_failures_during_the_wait_do_not_lengthen_it():
    clock = Seconds()
    slow = Throttle(clock)
    fail(slow, FREE_FAILURES + 1)
    clock.now += 0.5
    assert fail(slow, 3) == [0.5] * 3
    clock.now += 0.5
    assert slow.wait("a") == 0.0
    assert slow.failed("a") == 2.0


def test_the_wait_is_bounded_for_ever():
    clock = Seconds()
    slow = Throttle(clock)
    for _ in range(5000):
        clock.now += slow.failed("a")
    assert slow.failed("a") == LONGEST_SECONDS


def test_failures_are_forgotten():
    clock = Seconds()
    slow = Throttle(clock)
    fail(slow, FREE_FAILURES + 5)
    clock.now += FORGET_SECONDS
    assert slow.failed("a") == 0.0


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(credentials, "MAX_KEYS", 10)
    slow = Throttle(Seconds())
    for number in range(1000):
        slow.failed(str(number))
    assert len(slow._failures) == 10
