"""A guest is migrated between two libvirtds of one machine: its pins on arrival, and the events at the destination.

Only the source has a pinner: a second one would confuse the two QEMUs, which have the same UUID.
"""

import os
import subprocess
from pathlib import Path

import private_libvirt
import pytest
from support.guests.real_guests import ONLINE
from support.server.policy_host import fresh_policy_server, guest_on, wait_until
from support.system.kernel import masks

from pinner import wiring
from pinner.agent.host_event_queue import HostEventQueue
from pinner.host.processes import qemu
from pinner.host.virt.libvirt_events import OwnPins
from pinner.host.watch.events import HostWatcher

pytestmark = [pytest.mark.needs("root", "exactly_two_cpus"), pytest.mark.slow("migrations")]

ROOT = Path("/")
EVERYWHERE = f"{ONLINE[0]}-{ONLINE[1]}"
CONFIG = "[policy]\nresync_seconds = 600\n[host]\nsample_seconds = 0.1\n"


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of the source: a libvirtd of its own, without the guests of other tests."""
    return module_libvirtd


@pytest.fixture(scope="module")
def source(libvirtd):
    with fresh_policy_server(libvirtd, CONFIG) as server:
        yield server


@pytest.fixture
def event_queue(destination):
    """The queue of the host events at the destination."""
    queue = HostEventQueue(wiring.now)
    watcher = HostWatcher(destination, OwnPins(), queue, lambda: ())
    watcher.start()
    yield queue
    watcher.close()


def pid_of(uuid):
    return qemu.find(ROOT, {uuid}).qemus[uuid]


@pytest.mark.parametrize("released", [True, False])
def test_a_live_migration_keeps_pins_that_were_not_released(source, libvirtd, destination, event_queue, released):
    """libvirt migrates the pins with the guest, so pinner releases the guest before a migration."""
    name = f"moves-{os.getpid()}-{released}".lower()
    private_libvirt.start_guest(libvirtd, private_libvirt.guest_xml(name))
    source.policy("enforce", [name], housekeeping=str(ONLINE[0]))
    uuid = private_libvirt.virsh(libvirtd, "domuuid", name).strip()
    pid = pid_of(uuid)
    assert wait_until(lambda: guest_on(pid, ONLINE[1], ONLINE[1]), 60) < 60, source.drift()["error"]
    if released:
        body = {"guest": uuid, "event": "instance.live_migration_pre.start", "cpus": EVERYWHERE}
        answer = source.http.post("/events/guest-leaving", json=body)
        assert answer.json()["run"], answer.text
        assert set(masks(pid).values()) == {EVERYWHERE}
    migrate = ["virsh", "-c", libvirtd, "migrate", "--live", name, destination, "tcp://127.0.0.1"]
    subprocess.run(migrate, check=True, capture_output=True, text=True, timeout=60)
    source.policy("observe", [uuid])
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60) < 60
    arrived = pid_of(uuid)
    place = EVERYWHERE if released else ONLINE[1]
    assert guest_on(arrived, place, place)
    pins = private_libvirt.virsh(destination, "dumpxml", name).partition("<cputune>")[2].partition("</cputune>")[0]
    assert pins.count("cpuset='") == pins.count(f"cpuset='{place}'") > 0
    events = {(each.kind, each.detail) for each in event_queue.since(0, 5, ()) if each.subject == uuid}
    assert ("guest-started", "started: migrated") in events
    answer = source.http.post("/events/guest-gone", json={"guest": uuid, "event": "instance.live_migration_post.end"})
    assert answer.json()["known"] is False
    private_libvirt.virsh(destination, "destroy", name)
