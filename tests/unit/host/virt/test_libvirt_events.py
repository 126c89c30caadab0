"""Libvirt's events, from libvirt's own test driver."""

import threading
import uuid
from contextlib import closing
from queue import SimpleQueue

import libvirt
import pytest

from pinner.host.virt import libvirt_events
from pinner.host.virt.libvirt_events import Connected, DomainEvent, LibvirtEvents

URI = "test:///default"
XML = "<domain type='test'><name>{0}</name><uuid>{0}</uuid><memory>1024</memory><os><type>hvm</type></os></domain>"


class SlowList:
    """A connection to libvirt's test driver whose list of guests is older than an event that arrives before it.

    Nobody can force this order of an answer and an event on a real libvirtd.
    """

    def __init__(self, connection, meanwhile):
        self._connection = connection
        self._meanwhile = meanwhile
        self._reported = threading.Event()

    def setKeepAlive(self, *_):  # noqa: N802 - libvirt's name
        """The test driver has no connection that could be lost."""

    def domainEventRegisterAny(self, domain, event, callback, argument):  # noqa: N802 - libvirt's name
        def report(*arguments):
            callback(*arguments)
            self._reported.set()

        return self._connection.domainEventRegisterAny(domain, event, report, argument)

    def listAllDomains(self, flags):  # noqa: N802 - libvirt's name
        active = self._connection.listAllDomains(flags)
        self._meanwhile()
        assert self._reported.wait(60)
        return active

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.fixture
def driver():
    libvirt_events._event_loop()
    with closing(libvirt.open(URI)) as connection:
        yield connection


def test_a_guest_that_starts_while_the_guests_are_listed_is_started_after_the_list(driver, monkeypatch):
    guest, domains = str(uuid.uuid4()), []
    connect = libvirt.openReadOnly

    def start():
        domains.append(driver.createXML(XML.format(guest)))

    monkeypatch.setattr(libvirt, "openReadOnly", lambda uri: SlowList(connect(uri), start))
    signals = SimpleQueue()
    events = LibvirtEvents(URI, signals.put)
    events.start()
    first, second = signals.get(timeout=60), signals.get(timeout=60)
    events.close()
    domains[0].destroy()
    assert isinstance(first, Connected)
    assert guest not in first.guests
    assert second == DomainEvent("guest-started", guest, "started: booted")


def test_a_pause_and_a_reset_of_a_guest_are_told(driver, monkeypatch):
    """libvirt's test driver reports no reset: the callback of the event is called here."""
    guest, domains = str(uuid.uuid4()), []
    connect = libvirt.openReadOnly

    def start():
        domains.append(driver.createXML(XML.format(guest)))

    monkeypatch.setattr(libvirt, "openReadOnly", lambda uri: SlowList(connect(uri), start))
    signals = SimpleQueue()
    events = LibvirtEvents(URI, signals.put)
    events.start()
    assert [type(signals.get(timeout=60)) for _ in range(2)] == [Connected, DomainEvent]
    (domain,) = domains
    domain.suspend()
    assert signals.get(timeout=60) == DomainEvent("guest-paused", guest, "paused: paused")
    events._events()[libvirt.VIR_DOMAIN_EVENT_ID_REBOOT](driver, domain, None)
    assert signals.get(timeout=60) == DomainEvent("guest-reset", guest, "")
    events.close()
    domain.destroy()
