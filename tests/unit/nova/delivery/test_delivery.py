"""The delivery queue with real threads and an in-memory server."""

import threading
import time
from contextlib import contextmanager

import pytest
from support.nova.nova_listener import until
from support.values import NOON

from pinner.model.errors import HostBusy, HostUnreachable, Invalid, NotFound, PinnerError
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.nova.broker.notification import NovaEvent
from pinner.nova.delivery import delivery
from pinner.nova.delivery.delivery import DeliveryQueue


def nova_event(number=1, host="h1", kind="started"):
    return NovaEvent(host, GuestEvent(f"uuid-{number}", kind, "instance.create.end", "nova", NOON))


class Server:
    """A server that raises the ``failures`` of a host before it accepts the host's events."""

    def __init__(self):
        self.failures = {}
        self.sent = []
        self.known = True
        self.ignored = ""
        self.gate = threading.Semaphore(1_000_000)

    def send(self, event):
        assert self.gate.acquire(timeout=60)
        self.sent.append(event)
        if self.failures.get(event.host):
            raise self.failures[event.host].pop()
        return GuestEventOutcome(event.host, event.guest_event.guest, self.known, "", self.ignored)


@pytest.fixture
def server():
    return Server()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(delivery, "LAST_RETRY", 0.04)


@contextmanager
def running_queue(server):
    quarantined = []
    queue = DeliveryQueue(server.send, lambda event, reason: quarantined.append((event, reason)))
    queue.start()
    try:
        yield queue, quarantined
    finally:
        queue.close()


def test_queued_events_are_sent(server):
    with running_queue(server) as (queue, quarantined):
        for number in range(20):
            queue.add(nova_event(number))
        until(lambda: len(server.sent) == 20)
    assert quarantined == []


@pytest.mark.parametrize("error", [HostUnreachable("h1", "down"), HostBusy("h1", "run-1"), PinnerError("401")])
def test_failed_events_are_retried_and_the_outage_is_logged_once(server, error, caplog):
    server.failures["h1"] = [error] * 5
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event())
        until(lambda: len(server.sent) == 6)
        until(lambda: "delivered again" in caplog.text)
    assert quarantined == []
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "events of host h1 wait for a retry",
        "events of host h1 are delivered again",
    ]


def test_an_event_is_quarantined_after_the_last_attempt(server, monkeypatch):
    monkeypatch.setattr(delivery, "MAX_ATTEMPTS", 4)
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event())
        until(lambda: quarantined)
    assert len(server.sent) == 4
    assert quarantined[0][1].startswith("4 attempts failed: host h1: down")


@pytest.mark.parametrize("error", [NotFound("host", "h1"), Invalid("guest", 1, "a UUID"), ZeroDivisionError("bug")])
def test_permanent_errors_are_not_retried(server, error):
    server.failures["h1"] = [error]
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event())
        until(lambda: quarantined)
        queue.add(nova_event(2))
        until(lambda: len(server.sent) == 2)
    assert len(quarantined) == 1


def test_a_quarantine_that_fails_ends_no_thread(server, caplog):
    """All threads together are the listener: without one, the process ends."""

    def full(_event, _reason):
        raise OSError("no space left")

    server.failures["h1"] = [Invalid("guest", 1, "a UUID")] * 3
    queue = DeliveryQueue(server.send, full)
    queue.start()
    for number in range(3):
        queue.add(nova_event(number))
    until(lambda: caplog.text.count("an event of host h1 is lost") == 3)
    assert not any(heartbeat.has_died for heartbeat in queue.heartbeats)
    queue.close()


def test_events_of_unknown_guests_are_quarantined_unless_the_guest_is_gone(server):
    server.known = False
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event(1, kind="gone"))
        queue.add(nova_event(2))
        until(lambda: quarantined and len(server.sent) == 2)
    assert [reason for _, reason in quarantined] == ["uuid-2 is no guest of host h1"]


def test_a_host_that_does_not_answer_is_asked_once_about_guests_that_are_gone(server):
    """All guests of a host that is down are evacuated at the same time."""
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 1000
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event(0, kind="gone"))
        until(lambda: server.sent)
        for number in range(1, 50):
            queue.add(nova_event(number, kind="gone"))
        queue.add(nova_event(99, host="h2"))
        until(lambda: any(event.host == "h2" for event in server.sent), 1.0)
    assert len(server.sent) == 2
    assert quarantined == []


def test_the_hosts_that_are_remembered_are_bounded(server, monkeypatch):
    """Any program with access to the broker can send events of any number of hosts."""
    monkeypatch.setattr(delivery, "MAX_HOSTS", 3)
    monkeypatch.setattr(delivery, "MAX_ATTEMPTS", 1)
    hosts = [f"h{number}" for number in range(20)]
    for kind, fails in (("gone", True), ("started", True), ("started", False)):
        server.sent.clear()
        server.failures = {host: [HostUnreachable(host, "no such host")] for host in hosts} if fails else {}
        with running_queue(server) as (queue, _):
            for number, host in enumerate(hosts):
                queue.add(nova_event(number, host, kind))
                until(lambda number=number: len(server.sent) == number + 1)
        assert max(len(queue._silent), len(queue._failing), len(queue._answering)) == 3


def test_an_ignored_event_is_reported(server, caplog):
    server.ignored = "its time 1970-01-01 00:00:00 UTC was 20000 days ago"
    with running_queue(server) as (queue, quarantined):
        for number in range(5):
            queue.add(nova_event(number))
        until(lambda: len(server.sent) == 5)
    (record,) = caplog.records
    assert record.message == f"host h1: guest uuid-0, instance.create.end was ignored: {server.ignored}"
    assert quarantined == []


def test_a_host_that_is_down_does_not_delay_other_hosts(server):
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 1000
    with running_queue(server) as (queue, _):
        for number in range(10):
            queue.add(nova_event(number))
        queue.add(nova_event(99, host="h2"))
        until(lambda: any(event.host == "h2" for event in server.sent), 1.0)


def test_events_beyond_the_queue_limit_are_quarantined(server, monkeypatch):
    monkeypatch.setattr(delivery, "MAX_QUEUED", 3)
    server.gate = threading.Semaphore(0)
    with running_queue(server) as (queue, quarantined):
        for number in range(10):
            queue.add(nova_event(number))
        until(lambda: quarantined)
        assert quarantined[0][1] == "the queue is full: 3 events wait to be delivered"
        server.gate.release(100)


def test_events_that_waited_for_a_retry_leave_the_queue_as_empty_as_others(server, monkeypatch):
    monkeypatch.setattr(delivery, "MAX_QUEUED", 4)
    server.gate = threading.Semaphore(0)
    server.failures["h1"] = [HostUnreachable("h1", "down")]
    with running_queue(server) as (queue, quarantined):
        for number in range(3):
            queue.add(nova_event(number))
        server.gate.release(4)
        until(lambda: len(server.sent) == 4)
        for number in range(4):
            queue.add(nova_event(number))
        assert quarantined == []
        server.gate.release(100)


def test_queued_events_are_quarantined_at_the_end(server, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_RETRY", 60.0)
    monkeypatch.setattr(delivery, "LAST_RETRY", 60.0)
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    began = time.monotonic()
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event())
        until(lambda: server.sent)
    assert [reason for _, reason in quarantined] == ["the listener ended before it was delivered"]
    assert time.monotonic() - began < delivery.FIRST_RETRY / 2, "the end waited for a retry"


def test_waiting_for_a_retry_needs_no_cpu_time(server):
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    with running_queue(server) as (queue, _):
        queue.add(nova_event())
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.1


def test_a_host_that_does_not_answer_does_not_occupy_all_threads(server):
    gate = threading.Event()
    send = server.send

    def hang(event):
        if event.host == "h1":
            gate.wait(60)
        return send(event)

    server.send = hang
    with running_queue(server) as (queue, _):
        for number in range(100):
            queue.add(nova_event(number))
        queue.add(nova_event(99, host="h2"))
        try:
            until(lambda: [event.host for event in server.sent] == ["h2"], 5.0)
        finally:
            gate.set()
        until(lambda: len(server.sent) == 101)


@pytest.mark.parametrize(("silent", "events"), [(3, 10), (60, 1)], ids=["a few with many events", "many"])
def test_hosts_that_do_not_answer_delay_no_other_host(server, silent, events):
    """A rack without power: each question waits for an answer that does not come."""
    send, ended = server.send, threading.Event()

    def wait(event):
        if event.host == "h1":
            return send(event)
        ended.wait(120)
        raise HostUnreachable(event.host, "timed out")

    server.send = wait
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event(0, host="h1"))
        until(lambda: len(server.sent) == 1)
        for number in range(silent * events):
            queue.add(nova_event(number, host=f"silent-{number % silent}"))
        try:
            for number in range(1, 20):
                queue.add(nova_event(number, host="h1"))
                until(lambda sent=number: len(server.sent) == sent + 1, 60)
        finally:
            ended.set()
    assert len(quarantined) == silent * events
    assert {reason for _, reason in quarantined} == {"the listener ended before it was delivered"}


def test_events_of_thousands_of_hosts_cost_little_each(server, monkeypatch):
    """Any program with access to the broker can send them. The search for the next event cost more with each host."""
    monkeypatch.setattr(delivery, "FIRST_RETRY", 60.0)
    monkeypatch.setattr(delivery, "LAST_RETRY", 60.0)
    server.failures = {f"h{number}": [HostUnreachable("h", "no such host")] for number in range(4000)}
    with running_queue(server) as (queue, _):
        began = time.process_time()
        for number in range(4000):
            queue.add(nova_event(number, host=f"h{number}"))
        until(lambda: len(server.sent) == 4000, 120)
        queue.add(nova_event(host="another"))
        until(lambda: server.sent[-1].host == "another")
        assert time.process_time() - began < 4


def test_events_of_a_host_that_does_not_answer_are_quarantined_together(server, monkeypatch):
    """A thread waits for a silent server only once for all events, so none of them waits for hours."""
    monkeypatch.setattr(delivery, "MAX_ATTEMPTS", 4)
    asked = []

    def silent(event):
        asked.append(event)
        time.sleep(0.2)
        raise HostUnreachable(event.host, "timed out")

    server.send = silent
    with running_queue(server) as (queue, quarantined):
        for number in range(200):
            queue.add(nova_event(number))
        until(lambda: len(quarantined) == 200, 5.0)
    assert len(asked) <= 10
    assert {reason for _, reason in quarantined} == {"4 attempts failed: host h1: timed out"}
