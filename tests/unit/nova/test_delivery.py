"""Events on their way: real threads, and a server that is a function."""

import threading
import time
from contextlib import contextmanager

import pytest
from support.nova_listener import until
from support.values import NOON

from pinner.model.errors import HostBusy, HostUnreachable, Invalid, NotFound, PinnerError
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.nova import delivery
from pinner.nova.delivery import Deliveries
from pinner.nova.notification import Notified


def notified(number=1, host="h1", kind="started"):
    return Notified(host, GuestEvent(f"uuid-{number}", kind, "instance.create.end", "nova", NOON))


class Server:
    """Raises ``failures`` first, host by host."""

    def __init__(self):
        self.failures = {}
        self.sent = []
        self.known = True
        self.gate = threading.Semaphore(1_000_000)

    def send(self, one):
        assert self.gate.acquire(timeout=10)
        self.sent.append(one)
        if self.failures.get(one.host):
            raise self.failures[one.host].pop()
        return GuestEventOutcome(one.host, one.event.guest, self.known, "")


@pytest.fixture
def server():
    return Server()


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(delivery, "LAST_RETRY", 0.04)


@contextmanager
def delivering(server):
    given_up = []
    deliveries = Deliveries(server.send, lambda one, why: given_up.append((one, why)))
    deliveries.start()
    try:
        yield deliveries, given_up
    finally:
        deliveries.close()


def test_what_is_added_is_sent(server):
    with delivering(server) as (deliveries, given_up):
        for number in range(20):
            deliveries.add(notified(number))
        until(lambda: len(server.sent) == 20)
    assert given_up == []


@pytest.mark.parametrize("error", [HostUnreachable("h1", "down"), HostBusy("h1", "run-1"), PinnerError("401")])
def test_what_fails_is_tried_again_ever_later_and_told_once(server, error, caplog):
    server.failures["h1"] = [error] * 5
    with delivering(server) as (deliveries, given_up):
        deliveries.add(notified())
        until(lambda: len(server.sent) == 6)
        until(lambda: "delivered again" in caplog.text)
    assert given_up == []
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "events of host h1 wait and are tried again",
        "events of host h1 are delivered again",
    ]


def test_it_is_given_up_in_the_end(server, monkeypatch):
    monkeypatch.setattr(delivery, "TRIES", 4)
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    with delivering(server) as (deliveries, given_up):
        deliveries.add(notified())
        until(lambda: given_up)
    assert len(server.sent) == 4
    assert given_up[0][1].startswith("tried 4 times: host h1: down")


@pytest.mark.parametrize("error", [NotFound("host", "h1"), Invalid("guest", 1, "a UUID"), ZeroDivisionError("ours")])
def test_what_will_never_do_is_not_tried_again(server, error):
    server.failures["h1"] = [error]
    with delivering(server) as (deliveries, given_up):
        deliveries.add(notified())
        until(lambda: given_up)
        deliveries.add(notified(2))
        until(lambda: len(server.sent) == 2)
    assert len(given_up) == 1


def test_a_guest_that_is_not_there_is_told_but_for_one_that_is_gone(server):
    server.known = False
    with delivering(server) as (deliveries, given_up):
        deliveries.add(notified(1, kind="gone"))
        deliveries.add(notified(2))
        until(lambda: given_up and len(server.sent) == 2)
    assert [why for _, why in given_up] == ["uuid-2 is no guest of host h1"]


def test_a_host_that_is_down_holds_up_no_other(server):
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 1000
    with delivering(server) as (deliveries, _):
        for number in range(10):
            deliveries.add(notified(number))
        deliveries.add(notified(99, host="h2"))
        until(lambda: any(one.host == "h2" for one in server.sent), 1.0)


def test_too_many_are_given_up_at_once(server, monkeypatch):
    monkeypatch.setattr(delivery, "MAX_WAITING", 3)
    server.gate = threading.Semaphore(0)
    with delivering(server) as (deliveries, given_up):
        for number in range(10):
            deliveries.add(notified(number))
        until(lambda: given_up)
        assert given_up[0][1] == "3 others wait to be delivered"
        server.gate.release(100)


def test_what_waits_at_the_end_is_given_up(server, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_RETRY", 60.0)
    monkeypatch.setattr(delivery, "LAST_RETRY", 60.0)
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    began = time.monotonic()
    with delivering(server) as (deliveries, given_up):
        deliveries.add(notified())
        until(lambda: server.sent)
    assert [why for _, why in given_up] == ["the listener ended before it was delivered"]
    assert time.monotonic() - began < 5


def test_it_waits_in_peace(server):
    server.failures["h1"] = [HostUnreachable("h1", "down")] * 9
    with delivering(server) as (deliveries, _):
        deliveries.add(notified())
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.1
