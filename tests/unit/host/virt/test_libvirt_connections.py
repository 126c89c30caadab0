import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from pinner.host.virt import libvirt_connections
from pinner.host.virt.libvirt_connections import TimedCalls


@pytest.fixture(autouse=True)
def short_lives(monkeypatch):
    monkeypatch.setattr(libvirt_connections, "KEEP_SECONDS", 0.1)


@pytest.fixture
def started():
    """The number of threads that the test has started and that run; other tests may have left timers."""
    before = set(threading.enumerate())
    return lambda: len(set(threading.enumerate()) - before)


def wait_until_none(started):
    """Wait until the threads of the test have ended: they do so when they have had no call for KEEP_SECONDS."""
    deadline = time.monotonic() + 60
    while started() > 0:
        assert time.monotonic() < deadline, "a thread stays behind"
        time.sleep(0.01)


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def test_a_call_returns_the_result_or_raises_the_error(started):
    calls = TimedCalls(60)
    assert calls.call("g1", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        calls.call("g1", lambda: 1 / 0)
    wait_until_none(started)


def test_calls_one_after_the_other_need_one_thread(monkeypatch):
    monkeypatch.setattr(libvirt_connections, "KEEP_SECONDS", 5)
    calls = TimedCalls(60)
    assert len({calls.call("g1", threading.get_ident) for _ in range(100)}) == 1


def test_a_call_that_hangs_does_not_delay_another_key(gate):
    calls = TimedCalls(0.1)
    with pytest.raises(TimeoutError):
        calls.call("g1", gate.wait)
    calls.seconds = 60  # a busy machine answers late
    assert calls.call("g2", lambda: 2) == 2


def test_overdue_calls_run_in_the_order_of_the_requests(gate):
    """The undo of a call runs after it, even if the call is overdue."""
    calls = TimedCalls(0.05)
    done: list[str] = []
    for name in ("change", "undo", "more"):
        with pytest.raises(TimeoutError):
            calls.call("g1", lambda name=name: done.append(f"{name} {gate.wait()}"))
    assert done == []
    gate.set()
    with suppress(TimeoutError):
        calls.call("g1", lambda: done.append("last"))
    while len(done) < 4:
        time.sleep(0.01)
    assert done == ["change True", "undo True", "more True", "last"]


def test_after_two_timeouts_a_call_does_not_wait(gate, started):
    calls = TimedCalls(0.2)
    for _ in range(2):
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            calls.call("g1", gate.wait)
        assert time.monotonic() - start >= 0.2
    calls.seconds = threading.TIMEOUT_MAX  # a call that waited would not end
    for _ in range(2):
        with pytest.raises(TimeoutError):
            calls.call("g1", gate.wait)
    gate.set()
    wait_until_none(started)
    assert calls.call("g1", lambda: time.sleep(0.01)) is None, "calls wait again after an answer"


@pytest.mark.fault(41)
def test_questions_about_a_guest_that_hangs_do_not_add_threads(gate, started):
    calls = TimedCalls(0.01)
    for _ in range(50):
        with pytest.raises(TimeoutError):
            calls.call("g1", gate.wait, later=False)
    assert started() == 2


@pytest.mark.fault(41)
def test_changes_of_a_guest_that_hangs_are_bounded(gate, monkeypatch, started):
    monkeypatch.setattr(libvirt_connections, "MAX_PENDING", 20)
    calls = TimedCalls(0.01)
    for _ in range(50):
        with pytest.raises(TimeoutError):
            calls.call("g1", gate.wait)
    assert started() == 20


def test_simultaneous_calls_with_one_key_all_return():
    calls = TimedCalls(60)
    with ThreadPoolExecutor(8) as callers:
        assert list(callers.map(lambda number: calls.call("g1", lambda: number), range(2000))) == list(range(2000))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Thread.join has no such moments since Python 3.13")
def test_a_slow_machine_does_not_make_two_callers_that_wait_for_one_call_fail(request):
    """In Python 3.11, Thread.join fails if another thread waits for the same thread and the machine stops both at bad
    moments. Here each of them is stopped there again and again."""
    seconds = {threading.Thread._wait_for_tstate_lock.__code__: 0.01, threading.Thread._stop.__code__: 0.001}
    random = Random(1)

    def stop(frame, _event, _argument):
        if (code := frame.f_code) not in seconds:
            return None
        time.sleep(random.random() * seconds[code])
        return stop

    calls = TimedCalls(60)
    threading.settrace(stop)
    request.addfinalizer(lambda: threading.settrace(None))
    with ThreadPoolExecutor(4) as callers:
        answers = list(callers.map(lambda number: calls.call("g1", lambda: time.sleep(0.01) or number), range(40)))
    assert answers == list(range(40))
