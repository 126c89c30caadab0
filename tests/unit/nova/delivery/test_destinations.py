"""The CPUs of destinations: the questions are real HTTP requests to real sockets."""

import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.in_memory_service import InMemoryService
from support.hosts import cpus, guest, plain, snapshot
from support.nova.nova_listener import until
from support.server.access import InMemoryTokens
from support.server.real_service import answering
from support.values import sample_snapshot

from pinner import conf, wiring
from pinner.model.errors import HostUnreachable
from pinner.model.event import GuestEvent
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.nova.broker.notification import NovaEvent
from pinner.nova.delivery.delivery import DeliveryQueue
from pinner.nova.delivery.sender import WAIT_SECONDS, Destinations, Sender

SOURCE, SILENT = "127.0.0.1", [f"127.0.0.{number}" for number in range(2, 7)]
GUESTS = 20
LIMIT = 2.0
"""Seconds: how long a release may take after Nova has announced the migration; on a busy machine as much longer as it
takes without a destination."""
ANN = Caller("ann", "here", "req-1")


def test_a_destination_is_asked_once_and_its_answer_is_remembered():
    asked = []

    def ask(host):
        asked.append(host)
        return cpus("0-3")

    known = Destinations(ask)
    assert [str(known.cpus(host)) for host in ("b", "b", "c", "b")] == ["0-3"] * 4
    assert asked == ["b", "c"]


def test_an_old_answer_is_asked_for_again(monkeypatch):
    monkeypatch.setattr("pinner.nova.delivery.sender.KEEP_SECONDS", 0.05)
    answers = iter([cpus("0-3"), cpus("0-5")])
    known = Destinations(lambda host: next(answers))
    assert str(known.cpus("b")) == "0-3"
    time.sleep(0.1)
    assert str(known.cpus("b")) == "0-5"


@pytest.mark.parametrize("error", [HostUnreachable("b", "down"), ZeroDivisionError("bug")])
def test_a_destination_that_fails_has_no_known_cpus_and_is_not_asked_again(error):
    asked = []

    def ask(host):
        asked.append(host)
        raise error

    known = Destinations(ask)
    assert [str(known.cpus("b")) for _ in range(3)] == [""] * 3
    assert asked == ["b"]


class CountedEvent(threading.Event):
    """Knows how long each caller was to wait at most."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return super().wait(timeout)


def test_all_wait_together_for_a_silent_destination_and_use_its_late_answer():
    gate = threading.Event()

    def ask(host):
        gate.wait(60)
        return cpus("0-3")

    known, found = Destinations(ask), []
    answered = known._question("b").answered = CountedEvent()

    def wait():
        found.append(str(known.cpus("b")))

    threads = [threading.Thread(target=wait) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [""] * 10
    assert len(answered.waits) == 10
    assert 0 <= min(answered.waits) <= max(answered.waits) <= WAIT_SECONDS
    known.cpus("b")
    assert answered.waits[10:] == [0.0], "a later guest does not wait again"
    gate.set()
    until(lambda: str(known.cpus("b")) == "0-3")


def test_the_number_of_open_questions_is_bounded(monkeypatch):
    monkeypatch.setattr("pinner.nova.delivery.sender.MAX_OPEN", 3)
    monkeypatch.setattr("pinner.nova.delivery.sender.WAIT_SECONDS", 0.0)
    gate = threading.Event()
    before = threading.active_count()
    known = Destinations(lambda host: gate.wait(60) and cpus("0"))
    for number in range(50):
        known.cpus(f"host-{number}")
    assert threading.active_count() - before <= 4
    gate.set()


@pytest.fixture
def placed(tmp_path):
    """A service of the source, all of whose guests are placed."""
    host = snapshot(plain(16), [guest(number, 2, cpus("0-15")) for number in range(1, GUESTS + 1)])
    agent = HostedAgent(tmp_path / "agent", replace(host, host=SOURCE), wiring.now)
    with closing(agent.journal), ExitStack() as undo:
        service = wiring.service_parts(conf.load([]), {SOURCE: agent}, f"sqlite:///{tmp_path}/p.sqlite", undo).service
        plan = service.plan(SOURCE, Request(), None, 0.0, ANN)
        run = service.apply(plan.id, ApplyOptions(), ANN)
        until(lambda: service.run(run.id).state == "applied", 20)
        yield service, [each.uuid for each in host.guests]


@contextmanager
def draining(tmp_path, service, way):
    """A queue of events of the source, whose destinations do not answer, and when the source answered to each guest."""
    tokens, answered = InMemoryTokens(), {}
    for host in (SOURCE, *SILENT):
        (tmp_path / f"token of {host}").write_text(tokens.add("hook"))
    with ExitStack() as undo:
        url = undo.enter_context(answering(service, tokens))
        for address in SILENT:
            undo.enter_context(silent(address, int(url.rpartition(":")[2]), way))
        sender = Sender(url.replace(SOURCE, "{host}"), str(tmp_path / "token of {host}"))
        undo.callback(lambda: sender._server_of(SOURCE).close())

        def send(event):
            outcome = sender.send(event)
            answered[event.guest_event.guest] = time.monotonic()
            return outcome

        queue = DeliveryQueue(send, lambda event, reason: pytest.fail(reason))
        queue.start()
        undo.callback(queue.close)
        yield queue, answered


def leaving(uuid, number=None):
    event = GuestEvent(uuid, "leaving", "instance.live_migration_pre.start", "nova", wiring.now())
    return NovaEvent(SOURCE, event, "" if number is None else SILENT[number % len(SILENT)])


WAYS = pytest.mark.parametrize("way", ["no answer", "slow answer", "full backlog"])


def send_all(queue, answered, events):
    """The seconds until the source has answered to all events."""
    answered.clear()
    began = time.monotonic()
    for event in events:
        queue.add(event)
    until(lambda: len(answered) == len(events), 60, lambda: answered)
    return max(answered.values()) - began


@WAYS
def test_destinations_that_do_not_answer_delay_no_release(tmp_path, way):
    """All guests at once: none waits behind the questions to the destinations."""

    class Source(InMemoryService):
        def hosts(self):
            return (SOURCE,)

    with draining(tmp_path, Source(), way) as (queue, answered):
        guests = [f"00000000-0000-4000-8000-{number:012}" for number in range(GUESTS)]
        # In memory, the source has one guest only; the others have migrated before the event arrived.
        guests[0] = sample_snapshot().guests[0].uuid
        queue._quarantine = lambda event, reason: None
        without, took = (
            send_all(queue, answered, [leaving(uuid, number if asked else None) for number, uuid in enumerate(guests)])
            for asked in (False, True)
        )
    assert took < LIMIT + 2 * without


@WAYS
def test_each_guest_of_a_draining_host_is_released_in_time(tmp_path, placed, way):
    """One after the other, as Nova migrates them unless max_concurrent_live_migrations is larger."""
    service, guests = placed
    with draining(tmp_path, service, way) as (queue, answered):
        without = send_all(queue, answered, [leaving(guests[0])])
        took = [send_all(queue, answered, [leaving(uuid, number)]) for number, uuid in enumerate(guests)]
    runs = service.runs(SOURCE, PageRequest(100)).items
    assert [run.state for run in runs if run.kind == "release"] == ["applied"] * GUESTS
    assert max(took) < LIMIT + 2 * without, sorted(took)


@contextmanager
def silent(address, port, way):
    """A server that accepts connections, and answers slowly or never; with a full backlog it does not even accept."""
    with ExitStack() as undo:
        server = undo.enter_context(socket.create_server((address, port), backlog=0 if way == "full backlog" else 50))
        for _ in range(4 if way == "full backlog" else 0):
            filler = undo.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((address, port))
        if way == "slow answer":
            threading.Thread(target=answer_slowly, args=(server,), daemon=True).start()
        yield


def answer_slowly(server):
    """Answer with one byte after the other, so that no read takes long."""
    with suppress(OSError):
        peer, _ = server.accept()
        with peer:
            for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 100:
                peer.send(bytes([byte]))
                time.sleep(0.2)
