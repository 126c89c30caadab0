"""A host is drained: Nova migrates many real guests away, to hosts whose pinner does not answer.

The listener's own queue and sender deliver the events to a real server. All sockets are Unix sockets, by host name.
"""

import os
import socket
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import private_libvirt
import pytest
from support.guests.real_guests import ONLINE
from support.server.policy_host import fresh_policy_server, guest_on, wait_until
from support.system.kernel import masks

from pinner.host.live import ROOT
from pinner.host.processes import qemu
from pinner.model.cpuset import CpuSet
from pinner.model.event import GuestEvent
from pinner.nova.broker.notification import NovaEvent
from pinner.nova.delivery.delivery import DeliveryQueue
from pinner.nova.delivery.sender import Sender

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
]

SILENT = [f"silent{number}" for number in range(5)]
LIMIT = 2.0
"""Seconds for one release, after Nova has announced the migration; on a busy machine as much longer as a release takes
there without a destination."""
CONFIG = "[policy]\nresync_seconds = 600\n[host]\nsample_seconds = 0.1\n[nova]\nignore_nova_conf = true\n"
SECONDS = 240.0
EVERYWHERE = str(CpuSet.of(int(cpu) for cpu in ONLINE))


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of the draining host."""
    return module_libvirtd


@pytest.fixture(params=[6, pytest.param(20, marks=pytest.mark.slow("twenty guests that leave"))])
def guests(request, libvirtd):
    """The names of the guests, by UUID."""
    found = {}
    for number in range(request.param + 1):  # one of them goes to no silent host
        name = f"drains-{os.getpid()}-{number}"
        xml = private_libvirt.guest_xml(name, vcpus=1, memory_mib=16, iothreads=0)
        private_libvirt.start_guest(libvirtd, xml, paused=True)
        found[private_libvirt.virsh(libvirtd, "domuuid", name).strip()] = name
    yield found
    for name in found.values():
        private_libvirt.virsh(libvirtd, "destroy", name)


@pytest.fixture
def server(libvirtd, guests):
    """A server whose policy has placed all guests."""
    with fresh_policy_server(libvirtd, CONFIG) as server:
        server.policy("enforce", guests.values(), housekeeping=str(ONLINE[0]))
        for uuid, pid in qemu.find(ROOT, set(guests)).qemus.items():
            placed = lambda pid=pid: guest_on(pid, ONLINE[1], ONLINE[1])  # noqa: E731
            assert wait_until(placed, SECONDS) < SECONDS, (uuid, server.drift())
        yield server


@pytest.fixture
def release(server, tmp_path):
    """A function that announces a guest's migration; the seconds until the source has answered."""
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / server.host).symlink_to(server.url.removeprefix("unix:"))
    answered = {}

    def send(event):
        answered[event.guest_event.guest] = sender.send(event)
        return answered[event.guest_event.guest]

    with ExitStack() as undo:
        for host in SILENT:
            listening = undo.enter_context(closing(socket.socket(socket.AF_UNIX)))
            listening.bind(str(folder / host))
            listening.listen(50)
        sender = Sender(f"unix:{folder}/{{host}}", None)
        undo.callback(lambda: sender._server_of(server.host).close())
        queue = DeliveryQueue(send, lambda event, reason: pytest.fail(reason))
        queue.start()
        undo.callback(queue.close)

        def release(uuid, destination=""):
            now = datetime.now(UTC)
            event = GuestEvent(uuid, "leaving", "instance.live_migration_pre.start", "nova", now)
            began = time.monotonic()
            queue.add(NovaEvent(server.host, event, destination))
            assert wait_until(lambda: uuid in answered, SECONDS) < SECONDS
            assert answered[uuid].run
            return time.monotonic() - began

        yield release


def test_each_guest_is_released_in_time(guests, release):
    pids = qemu.find(ROOT, set(guests)).qemus
    first, *others = guests
    without = release(first)
    took = []
    for number, uuid in enumerate(others):
        took.append(release(uuid, SILENT[number % len(SILENT)]))
        assert set(masks(pids[uuid]).values()) == {EVERYWHERE}
    print(f"without a destination {without:.3f} s, with a silent one {sorted(took)}")
    assert max(took) < LIMIT + 2 * without, sorted(took)
