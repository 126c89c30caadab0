"""A guest is not placed while its migration is under way, at the source and at the destination, and is placed once the
migration has ended. libvirt refuses each pin until then.

The guest writes its memory faster than the migration copies it, so the test decides when the migration ends.
"""

import os
import re
import subprocess
import time
from contextlib import contextmanager, suppress
from itertools import count

import private_libvirt
import pytest
from support.guests.real_guests import ONLINE
from support.server.policy_host import fresh_policy_server, guest_on, wait_until
from support.server.unix_http import http_client

from pinner.host.live import ROOT
from pinner.host.processes import qemu
from pinner.host.virt.libvirt import Libvirt

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
    pytest.mark.slow("migrations"),
]

CONFIG = "[policy]\nresync_seconds = 600\n[host]\nsample_seconds = 0.1\n"
WRITER = (
    bytes.fromhex(
        "fafc31c08ed80f0116507c"  # cli; cld; ds = 0; load the table of segments
        "0f20c00c010f22c0ea187c0800"  # into protected mode
        "66b810008ed88ec0"  # ds = es = all memory
        "42bf00001000b90000c00089d0f3abebef"  # for ever: write the next number to each word from 1 MiB to 49 MiB
    ).ljust(0x40, b"\0")
    + bytes.fromhex("ffff0000009acf00ffff00000092cf001700387c0000")  # the table of segments
).ljust(510, b"\0") + b"\x55\xaa"
"""A boot sector that writes 48 MiB of memory again and again, with other values each time."""
LAST_WORD = 0x30FFFFC
"""The address of the last word that it writes."""
SECONDS = 120.0
"""The longest wait for anything; a busy machine is slow."""
LATE_RELEASE = 10.0
"""Seconds for the answer to a late release on a busy machine. libvirt would hold it for 20 or 30."""
NUMBERS = count()


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of the source."""
    return module_libvirtd


@pytest.fixture
def writer(libvirtd, destination, tmp_path):
    """The name and the UUID of a running guest that writes its memory."""
    name = f"writes-{os.getpid()}-{next(NUMBERS)}"
    (tmp_path / "boot.img").write_bytes(WRITER.ljust(1 << 20, b"\0"))
    source = f"<source file='{tmp_path}/boot.img'/>"
    disk = f"<disk type='file'>{source}<target dev='vda' bus='virtio'/><readonly/></disk>"
    private_libvirt.start_guest(libvirtd, private_libvirt.guest_xml(name, vcpus=1, devices=disk))
    yield name, private_libvirt.virsh(libvirtd, "domuuid", name).strip()
    for uri in (libvirtd, destination):
        with suppress(subprocess.CalledProcessError):
            private_libvirt.virsh(uri, "destroy", name)


@contextmanager
def migrating(name, source, destination):
    """A migration that does not end by itself."""
    private_libvirt.virsh(source, "migrate-setspeed", name, "1")
    private_libvirt.virsh(source, "migrate-setmaxdowntime", name, "1")
    assert wait_until(lambda: last_word(name, source) > 0, SECONDS) < SECONDS, "the boot sector does not run"
    command = ["virsh", "-c", source, "migrate", "--live", name, destination, "tcp://127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            both = lambda: {state_of(uri, name) for uri in (source, destination)}  # noqa: E731
            assert wait_until(lambda: both() == {"migrating"} or process.poll() is not None, SECONDS) < SECONDS, both()
            assert process.poll() is None, process.stdout.read()
            yield process
            # A busy libvirtd may not answer for one of them at the first look.
            going_on = lambda: both() == {"migrating"} or process.poll() == 0  # noqa: E731
            assert wait_until(going_on, SECONDS) < SECONDS, "the migration has ended by itself"
        finally:
            if process.poll() is None:
                private_libvirt.virsh(source, "domjobabort", name)
                process.wait(SECONDS)


def last_word(name, uri):
    """The last word of the memory that the guest writes: 0 before it has written all of it once."""
    return int(
        private_libvirt.virsh(uri, "qemu-monitor-command", name, "--hmp", f"xp /1xw {LAST_WORD}").split()[-1], 16
    )


def reconciles(server):
    """How often pinner has reconciled the host."""
    with http_client(server.url, timeout=60) as http:
        found = re.search(r"^pinner_observation_seconds_count{.*} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def assert_not_placed(server, name):
    """Assert that pinner reconciles the host three times and does not place the guest."""
    least = reconciles(server) + 3
    assert wait_until(lambda: reconciles(server) >= least, SECONDS) < SECONDS, server.drift()
    assert server.drift()["migrating"] == [name]
    assert server.runs() == []


def assert_placed_once(server, pid):
    """Assert that one run places the guest. Where the QEMU of the source still ends at the first look, the plan has its
    threads, because both QEMUs are processes of this host here: that run fails, and changes nothing."""
    assert wait_until(lambda: guest_on(pid, ONLINE[1], ONLINE[1]), SECONDS) < SECONDS, server.drift()
    runs = lambda: [run["state"] for run in server.runs() if "it was restarted" not in run["error"]]  # noqa: E731
    assert wait_until(lambda: runs() == ["applied"], SECONDS) < SECONDS, str(server.runs())


def end(name, source, process):
    """Let the migration end."""
    private_libvirt.virsh(source, "migrate-setspeed", name, "10000")
    private_libvirt.virsh(source, "migrate-setmaxdowntime", name, "5000")
    assert process.wait(SECONDS) == 0


def state_of(uri, name):
    return next((each.state for each in Libvirt(uri).active() if each.name == name), None)


def test_both_sides_know_a_guest_whose_migration_has_not_ended(libvirtd, destination, writer):
    name, _ = writer
    assert state_of(libvirtd, name) == "running"
    with migrating(name, libvirtd, destination) as process:
        assert (state_of(libvirtd, name), state_of(destination, name)) == ("migrating", "migrating")
        assert state_of(destination, f"first-{os.getpid()}") == "paused"
        end(name, libvirtd, process)
    assert (state_of(libvirtd, name), state_of(destination, name)) == (None, "running")


def test_the_source_places_the_guest_when_its_migration_is_cancelled(libvirtd, destination, writer):
    name, uuid = writer
    pid = qemu.find(ROOT, {uuid}).qemus[uuid]
    with fresh_policy_server(libvirtd, CONFIG) as server:
        with migrating(name, libvirtd, destination):
            request = {"strategy": "shared-pool", "guests": [name], "housekeeping": str(ONLINE[0])}
            plan = server.http.post(f"/hosts/{server.host}/plans", json=request).json()
            assert "skipped" in plan, plan
            assert [each["why"] for each in plan["skipped"] if each["target"]["name"] == name] == [
                "its migration has not ended"
            ]
            server.policy("enforce", [name], housekeeping=str(ONLINE[0]))
            assert_not_placed(server, name)
        assert_placed_once(server, pid)


def test_a_release_that_comes_late_changes_nothing_and_waits_for_nothing(libvirtd, destination, writer):
    """libvirt holds a pin of such a guest back until its migration has ended, or for half a minute."""
    name, uuid = writer
    with fresh_policy_server(libvirtd, CONFIG) as server:
        server.policy("enforce", [name], housekeeping=str(ONLINE[0]))
        assert_placed_once(server, qemu.find(ROOT, {uuid}).qemus[uuid])
        with migrating(name, libvirtd, destination):
            event = {"guest": uuid, "event": "instance.live_migration_pre.start", "host": server.host}
            began = time.monotonic()
            answer = server.http.post("/events/guest-leaving", json=event)
            took = time.monotonic() - began
            assert answer.status_code in (200, 202), answer.text
            assert took < LATE_RELEASE, took
            assert [run["kind"] for run in server.runs()] == ["apply"]


def test_the_destination_places_the_guest_when_its_migration_has_ended(libvirtd, destination, writer):
    name, uuid = writer
    with fresh_policy_server(destination, CONFIG) as server:
        server.policy("enforce", [uuid], housekeeping=str(ONLINE[0]))
        with migrating(name, libvirtd, destination) as process:
            assert_not_placed(server, name)
            end(name, libvirtd, process)
        assert_placed_once(server, qemu.find(ROOT, {uuid}).qemus[uuid])
