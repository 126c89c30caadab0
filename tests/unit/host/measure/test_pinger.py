"""Pings of guests: what counts as answered, as lost, and as not known."""

import time
from collections.abc import Mapping

import pytest

from pinner.host.measure.meter import HostMeter, MeteredGuest
from pinner.host.measure.pinger import SILENT_PINGS, Echoes, Moment, Pinger
from pinner.model.errors import HostUnreachable
from pinner.model.outcome.measures import PINGS_OF_P99, Pings

WEB = MeteredGuest("u-1", "web-1", 5, 77, (), ())


class Network:
    """A network in which a guest answers after ``delay_ms``; None: it does not."""

    def __init__(self):
        self.ns, self.passed = 10**18, 100.0
        self.delay_ms = 2.0
        self.cannot_send = False
        self.closed = 0
        self._tokens = []

    def clock(self):
        return Moment(self.ns, self.passed)

    def sleep(self, seconds=1.0, clock_seconds=None):
        self.passed += seconds
        self.ns += int((seconds if clock_seconds is None else clock_seconds) * 1e9)

    def open(self, address):
        assert address == "192.0.2.7"
        return self

    def send(self, token):
        if self.cannot_send:
            raise OSError("no route")
        if self.delay_ms is not None:
            self._tokens.append((token, self.ns + int(self.delay_ms * 1e6)))

    def answers(self):
        found, self._tokens = self._tokens, []
        return iter(found)

    def close(self):
        self.closed += 1


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def pinger(network):
    made = Pinger({"web-1": "192.0.2.7"}, network.open, network.clock)
    made([WEB])
    return made


def turns(pinger, network, count, **sleep):
    for _ in range(count):
        pinger.turn()
        network.sleep(**sleep)


def test_round_trips_are_added_up(pinger, network):
    turns(pinger, network, 4)
    assert pinger([WEB]) == {"u-1": Pings(3, 0, 6.0, (2.0, 2.0, 2.0))}


def test_the_latest_round_trips_are_kept(pinger, network):
    turns(pinger, network, PINGS_OF_P99 + 5)
    network.delay_ms = 9.0
    turns(pinger, network, 2)
    assert pinger([WEB])["u-1"].recent == (*(2.0,) * (PINGS_OF_P99 - 1), 9.0)


def test_a_guest_that_never_answers_is_not_known(pinger, network):
    network.delay_ms = None
    turns(pinger, network, 20)
    assert pinger([WEB]) == {}


def test_a_ping_without_an_answer_counts_as_the_longest_one(pinger, network):
    turns(pinger, network, 2)
    network.delay_ms = None
    turns(pinger, network, 3)
    assert pinger([WEB]) == {"u-1": Pings(4, 2, 2004.0, (2.0, 2.0, 1000.0, 1000.0))}


def test_an_answer_that_comes_too_late_is_none(pinger, network):
    turns(pinger, network, 2)
    network.delay_ms = 1500.0
    turns(pinger, network, 2, seconds=2.0)
    assert pinger([WEB])["u-1"].lost == 1


def test_a_guest_that_begins_to_filter_pings_is_not_known_after_a_while(pinger, network):
    turns(pinger, network, 2)
    network.delay_ms = None
    turns(pinger, network, SILENT_PINGS)
    assert pinger([WEB])["u-1"].lost == SILENT_PINGS - 1
    turns(pinger, network, 2)
    assert pinger([WEB]) == {}
    network.delay_ms = 3.0
    turns(pinger, network, 2)
    assert pinger([WEB]) == {"u-1": Pings(1, 0, 3.0, (3.0,))}


@pytest.mark.parametrize("clock_seconds", [-3600.0, 0.5, 3600.0])
def test_a_ping_in_which_the_clock_jumps_does_not_count(pinger, network, clock_seconds):
    turns(pinger, network, 2)
    before = pinger([WEB])
    turns(pinger, network, 1, clock_seconds=clock_seconds)
    turns(pinger, network, 1)
    assert pinger([WEB])["u-1"].ended == before["u-1"].ended + 1


def test_a_ping_that_this_host_cannot_send_does_not_count(pinger, network):
    turns(pinger, network, 2)
    network.cannot_send = True
    turns(pinger, network, 5)
    assert pinger([WEB]) == {"u-1": Pings(2, 0, 4.0, (2.0, 2.0))}


def test_a_restarted_guest_and_one_that_went_begin_again(pinger, network):
    turns(pinger, network, 3)
    again = MeteredGuest("u-1", "web-1", 6, 99, (), ())
    assert pinger([again]) == {}
    assert network.closed == 1
    turns(pinger, network, 2)
    assert pinger([again])["u-1"].ended == 1
    assert pinger([]) == {}
    assert network.closed == 2


def test_only_the_configured_guests_are_pinged(network):
    by_uuid = Pinger({"u-1": "192.0.2.7"}, network.open, network.clock)
    other = MeteredGuest("u-2", "web-2", 8, 77, (), ())
    by_uuid([WEB, other])
    turns(by_uuid, network, 2)
    assert by_uuid([WEB, other]).keys() == {"u-1"}


def test_a_socket_that_cannot_be_opened_is_named_and_tried_again(network, caplog):
    answers = [PermissionError("not permitted")]

    def open_echoes(address):
        if answers:
            raise answers.pop()
        return network.open(address)

    pinger = Pinger({"web-1": "192.0.2.7"}, open_echoes, network.clock)
    pinger([WEB])
    assert "192.0.2.7 is not pinged: no ICMP socket can be opened: not permitted" in caplog.text
    pinger([WEB])
    turns(pinger, network, 2)
    assert pinger([WEB])["u-1"].ended == 1


def test_the_meter_adds_the_pings_to_the_counts(tmp_path):
    class NoDomains:
        users: Mapping[str, int | None] = {}

        def active(self):
            raise HostUnreachable("qemu:///system", "no")

    asked = []
    meter = HostMeter(tmp_path, NoDomains(), pings_of=lambda guests: asked.append(guests) or {})
    assert len(meter()) == 1
    assert asked == [()]


@pytest.mark.needs("icmp")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_this_machine_answers_its_own_pings(address):
    """On an ICMP socket of the kernel's, with its timestamps."""
    echoes = Echoes(address)
    try:
        before = time.time_ns()
        try:
            echoes.send(b"12345678")
        except OSError as error:
            pytest.skip(f"no route to {address}: {error}")
        deadline = time.monotonic() + 60
        found = []
        while not found:
            assert time.monotonic() < deadline
            found = list(echoes.answers())
    finally:
        echoes.close()
    ((token, at),) = found
    assert token == b"12345678"
    assert before <= at <= time.time_ns()


def test_a_raw_socket_reads_the_same_answers(monkeypatch):
    """Where unprivileged ICMP sockets are not allowed, root uses raw ones."""
    import socket

    real = socket.socket

    def only_raw(family, kind, protocol):
        if kind & 0xF == socket.SOCK_DGRAM:
            raise PermissionError("ping_group_range")
        return real(family, kind, protocol)

    monkeypatch.setattr(socket, "socket", only_raw)
    test_this_machine_answers_its_own_pings("127.0.0.1")
    test_this_machine_answers_its_own_pings("::1")
