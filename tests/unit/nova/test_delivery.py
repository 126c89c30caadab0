"""The delivery queue with real threads and an in-memory server."""

import threading
import time
from contextlib import contextmanager

import pytest
from support.nova_listener import until
from support.values import NOON

from pinner.model.errors import HostBusy, HostUnreachable, Invalid, NotFound, PinnerError
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.nova import delivery
from pinner.nova.delivery import DeliveryQueue
from pinner.nova.notification import NovaEvent


def nova_event(number=1, host="h1", kind="started"):
    return NovaEvent(host, GuestEvent(f"uuid-{number}", kind, "instance.create.end", "nova", NOON))


class Server:
    """A server that raises the ``failures`` of a host before it accepts the host's events."""

    def __init__(self):
        self.failures = {}
        self.sent = []
        self.known = True
        self.gate = threading.Semaphore(1_000_000)

    def send(self, event):
        assert self.gate.acquire(timeout=10)
        self.sent.append(event)
        if self.failures.get(event.host):
            raise self.failures[event.host].pop()
        return GuestEventOutcome(event.host, event.guest_event.guest, self.known, "")


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


def test_events_of_unknown_guests_are_quarantined_unless_the_guest_is_gone(server):
    server.known = False
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event(1, kind="gone"))
        queue.add(nova_event(2))
        until(lambda: quarantined and len(server.sent) == 2)
    assert [reason for _, reason in quarantined] == ["uuid-2 is no guest of host h1"]


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


def test_queued_events_are_quarantined_at_the_end(server, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_RETRY", 60.0)
    monkeypatch.setattr(delivery, "LAST_RETRY", 60.0)
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    began = time.monotonic()
    with running_queue(server) as (queue, quarantined):
        queue.add(nova_event())
        until(lambda: server.sent)
    assert [reason for _, reason in quarantined] == ["the listener ended before it was delivered"]
    assert time.monotonic() - began < 5


def test_waiting_for_a_retry_needs_no_cpu_time(server):
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    with running_queue(server) as (queue, _):
        queue.add(nova_event())
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.1
