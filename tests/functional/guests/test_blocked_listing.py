"""A guest is dumped into a pipe that nobody reads, and blocks every list of guests in libvirt. It alone is unread."""

import os
import select
import subprocess
import time
from contextlib import contextmanager
from uuid import uuid4

import private_libvirt
import pytest
from support.guests.real_guests import ONLINE
from support.server.policy_host import RARE_RESYNC, fresh_policy_server, guest_on, wait_until
from support.waits import Waits

from pinner.host.inventory import LIVE, take_snapshot
from pinner.host.live import ROOT, LiveHost
from pinner.host.processes import qemu
from pinner.host.virt import libvirt_connections
from pinner.host.virt.libvirt import UNANSWERED, Libvirt
from pinner.wiring import now

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
]


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of a libvirtd of its own, whose lists can be blocked."""
    return module_libvirtd


@pytest.fixture
def guests(libvirtd):
    """Starts guests by the first part of their names, and returns their names; they end with the test."""
    started = []

    def start(name, extra=""):
        started.append(f"{name}-{os.getpid()}")
        private_libvirt.define_guest(libvirtd, private_libvirt.guest_xml(started[-1], extra=extra), paused=True)
        return started[-1]

    yield start
    for name in started:
        private_libvirt.virsh(libvirtd, "destroy", name)
        private_libvirt.virsh(libvirtd, "undefine", name)


@contextmanager
def blocked(uri, name, folder):
    """Within the context every call of libvirt about the guest hangs."""
    pipe = folder / f"pipe-{name}"
    os.mkfifo(pipe)
    with subprocess.Popen(["virsh", "-c", uri, "dump", name, pipe], stdout=subprocess.DEVNULL) as dump:
        try:
            time.sleep(1)
            assert dump.poll() is None
            yield
        finally:
            drain(pipe, dump)


def drain(pipe, dump):
    """Read the pipe until the dump has ended."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    while dump.poll() is None:
        select.select([reader], [], [], 0.1)
        try:
            os.read(reader, 1 << 20)
        except BlockingIOError:
            continue
    os.close(reader)


@pytest.fixture
def waits(monkeypatch):
    """The waits for calls of libvirt that end with a timeout. Seconds would depend on the machine's load."""
    counted = Waits()
    monkeypatch.setattr(libvirt_connections, "Future", counted.future)
    return counted


def test_the_blocked_guest_alone_is_unread_and_every_later_look_is_quick(libvirtd, guests, tmp_path, waits):
    web, database, off = guests("web"), guests("database"), guests("off")
    private_libvirt.virsh(libvirtd, "destroy", off)
    libvirt = Libvirt(libvirtd, 2.0)
    host = LiveHost(libvirt)

    def look():
        return take_snapshot(LIVE, "h1", libvirt, sample_seconds=0, now=now)

    usual = look()
    with blocked(libvirtd, web, tmp_path):
        for _ in range(2):
            seen = look()
            assert {guest.name: guest.unread for guest in seen.guests} == {web: UNANSWERED, database: ""}
            assert seen.inactive == usual.inactive
            assert any(web in warning for warning in seen.warnings)
        waits.timeouts.clear()
        look()
        host.bounds()
        assert waits.timeouts == []
        uuids = {guest.name: guest.uuid for guest in seen.guests}
        assert host.bounds().excluded == {uuids[web]}
        assert host.has_guest(uuids[database])
    # The calls that nobody waited for end now.
    wait_until(lambda: {guest.name: guest.unread for guest in look().guests} == {web: "", database: ""}, 60)
    private_libvirt.virsh(libvirtd, "start", off)


def test_a_policy_places_the_other_guests_while_one_blocks_the_listing(libvirtd, guests, tmp_path):
    blocking = guests("blocking")
    uuids = [str(uuid4()) for _ in range(3)]

    # libvirt defines no guest while another one blocks it.
    for name, uuid in zip(("usual", "first", "later"), uuids, strict=True):
        private_libvirt.virsh(libvirtd, "destroy", guests(name, f"<uuid>{uuid}</uuid>"))

    def place(uuid):
        """Start a guest and wait until it is placed."""
        subprocess.run(["virsh", "-q", "-c", libvirtd, "start", uuid], check=True, timeout=30)
        pid = qemu.find(ROOT, {uuid}).qemus[uuid]
        assert wait_until(lambda: guest_on(pid, ONLINE[1], ONLINE[1]), 60) < 60, server.drift()

    with fresh_policy_server(libvirtd, f"{RARE_RESYNC}[libvirt]\ncall_timeout = 3\n") as server:
        server.policy("enforce", uuids, housekeeping=str(ONLINE[0]))
        place(uuids[0])
        with blocked(libvirtd, blocking, tmp_path):
            place(uuids[1])
            place(uuids[2])
