"""The events of real guests, processes and cpusets, from a real libvirtd and the kernel."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import private_libvirt
import pytest
from support.guests.real_guests import FIRST, SECOND, cpuset_of, emulator, iothread, vcpu
from support.server.policy_host import wait_until
from support.system.kernel import process

from pinner import wiring
from pinner.agent.host_event_queue import HostEventQueue
from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt_events import OwnPins
from pinner.host.watch.events import HostWatcher
from pinner.model.cpuset import CpuSet

pytestmark = pytest.mark.machine("the process connector tells of new processes in the first namespaces alone")

ROOT = Path("/")
QUIET = 0.5
"""Seconds after which an event that has not arrived will not arrive."""


class Subscriber:
    """A reader of the event queue, which reads each event once."""

    def __init__(self, event_queue, names=()):
        self._event_queue = event_queue
        self._names = names
        self._last_seq = 0
        self.discard()

    def discard(self):
        """Drop all events so far."""
        time.sleep(QUIET)
        for event in self._event_queue.since(self._last_seq, 0, self._names):
            self._last_seq = event.seq

    def wait_for(self, kind, subject, seconds=20.0):
        """The detail of the first event of this kind and subject; the test fails if none arrives."""
        arrived, deadline = [], time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for event in self._event_queue.since(self._last_seq, left, self._names):
                self._last_seq = event.seq
                arrived.append((event.kind, event.subject))
                if arrived[-1] == (kind, subject):
                    return event.detail
        pytest.fail(f"no {kind} of {subject} but {arrived}")

    def drain(self):
        """The kind and subject of all events that arrive within QUIET seconds, but those of CPUs: other tests make
        messages of the kernel about CPUs."""
        found = self._event_queue.since(self._last_seq, QUIET, self._names)
        self._last_seq = max((event.seq for event in found), default=self._last_seq)
        return [(event.kind, event.subject) for event in found if event.kind != "cpu-changed"]


@pytest.fixture
def placed():
    return []


@pytest.fixture
def sleeper(tmp_path):
    """A copy of the sleep program, under a name that no other process of the machine has."""
    return Path(shutil.copy("/bin/sleep", tmp_path / f"sleeper-{os.getpid()}"))


@pytest.fixture
def own_pins():
    return OwnPins()


@pytest.fixture
def host(libvirt, own_pins):
    return LiveHost(libvirt, own_pins=own_pins)


@pytest.fixture
def event_queue(libvirtd, own_pins, placed):
    queue = HostEventQueue(wiring.now)
    watcher = HostWatcher(libvirtd, own_pins, queue, lambda: placed)
    watcher.start()
    yield queue
    watcher.close()


@pytest.fixture
def subscriber(event_queue):
    return Subscriber(event_queue)


def test_each_start_and_stop_of_a_guest_is_an_event(libvirtd, start_guest, subscriber, tmp_path):
    guest = start_guest(persistent=True)
    assert subscriber.wait_for("guest-started", guest.uuid) == "started: booted"
    private_libvirt.virsh(libvirtd, "resume", guest.name)
    private_libvirt.virsh(libvirtd, "reset", guest.name)
    assert subscriber.wait_for("guest-reset", guest.uuid) == ""
    private_libvirt.virsh(libvirtd, "save", guest.name, str(tmp_path / "saved"))
    assert subscriber.wait_for("guest-stopped", guest.uuid) == "stopped: saved"
    private_libvirt.virsh(libvirtd, "restore", str(tmp_path / "saved"))
    assert subscriber.wait_for("guest-started", guest.uuid) == "started: restored"
    private_libvirt.virsh(libvirtd, "destroy", guest.name)
    assert subscriber.wait_for("guest-stopped", guest.uuid) == "stopped: destroyed"
    private_libvirt.virsh(libvirtd, "undefine", guest.name)
    assert subscriber.drain() == []


def test_only_pins_by_other_programs_are_events(libvirtd, start_guest, host, subscriber):
    guest = start_guest()
    subscriber.discard()
    host.pin(vcpu(guest), FIRST, persist=False)
    host.pin(emulator(guest), SECOND, persist=False)
    host.pin(iothread(guest), FIRST, persist=False)
    assert subscriber.drain() == []
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(SECOND), "--live")
    private_libvirt.virsh(libvirtd, "iothreadpin", guest.name, "1", str(SECOND), "--live")
    details = subscriber.wait_for("guest-changed", guest.uuid).split("; ")
    if len(details) == 1:  # on a busy machine there are two events
        details.append(subscriber.wait_for("guest-changed", guest.uuid))
    assert details == [f"vcpu 0 pinned to {SECOND}", f"iothread 1 pinned to {SECOND}"]


@pytest.mark.needs("process_connector")
def test_a_new_vcpu_or_iothread_is_an_event(libvirtd, start_guest, subscriber):
    guest = start_guest(vcpus=3, plugged=1, paused=False)
    subscriber.discard()
    private_libvirt.virsh(libvirtd, "setvcpus", guest.name, "2", "--live")
    assert subscriber.wait_for("guest-changed", guest.uuid).startswith("new threads: CPU 1/")
    private_libvirt.virsh(libvirtd, "iothreadadd", guest.name, "2", "--live")
    assert "IO iothread2" in subscriber.wait_for("guest-changed", guest.uuid)


@pytest.mark.fault(20)
def test_a_cpuset_changed_without_libvirt_is_an_event(start_guest, host, subscriber):
    guest = start_guest()
    host.pin(vcpu(guest), FIRST, persist=False)
    subscriber.discard()
    folder = cpuset_of(next(each.thread.tid for each in guest.vcpus))
    (folder / "cpuset.cpus").write_text(str(SECOND))
    subject = str(folder.relative_to(cpuset_mount(ROOT).folder))
    assert subscriber.wait_for("cpuset-written", subject) == f"CPUs {SECOND}"
    (folder / "cpuset.cpus").write_text(str(FIRST))
    assert subscriber.drain() == []


def test_excluding_a_guest_is_stored_and_is_an_event(libvirtd, libvirt, host, start_guest, subscriber):
    guest = start_guest(persistent=True)
    for excluded in (True, True, False, False):
        subscriber.discard()
        libvirt.set_excluded(guest.uuid, excluded=excluded)
        found = next(each for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)
        assert found.excluded is (guest.uuid in host.bounds().excluded) is excluded
        assert (
            "urn:pinner:domain:1" in private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", guest.name)
        ) is excluded
    libvirt.set_excluded(guest.uuid, excluded=True)
    assert subscriber.wait_for("guest-changed", guest.uuid) == "metadata"


def test_a_new_process_of_a_watched_name_is_an_event_where_it_is_misplaced(event_queue, placed, sleeper):
    subscriber = Subscriber(event_queue, (sleeper.name,))
    for expected in ({"process-started"}, set()):
        with subprocess.Popen([sleeper, "0.3"]) as child:
            # One event or two: on a busy machine the new process and its new name are separate events.
            assert {kind for kind, subject in subscriber.drain() if subject == str(child.pid)} == expected
        placed.append(CpuSet.of(os.sched_getaffinity(0)))


@pytest.mark.needs("process_connector")
def test_a_process_that_started_before_its_name_was_watched_is_an_event(event_queue, sleeper):
    def started(pid):
        events = event_queue.since(0, 0, None)
        return any((event.kind, event.subject) == ("process-started", str(pid)) for event in events)

    with subprocess.Popen([sleeper, "60"]) as child:
        time.sleep(QUIET)
        assert not started(child.pid)
        event_queue.since(0, 0, (sleeper.name,))
        assert wait_until(lambda: started(child.pid), 60) < 60
        child.kill()


def test_a_process_that_changes_its_name_to_a_watched_one_is_an_event(event_queue):
    subscriber = Subscriber(event_queue, ("pinner-probe",))
    code = "open('/proc/self/comm', 'w').write('pinner-probe'); print('ready', flush=True); import time; time.sleep(9)"
    with process(code) as pid:
        assert subscriber.wait_for("process-started", str(pid)) == "pinner-probe"


def test_events_continue_after_libvirtd_was_killed_and_restarted(libvirtd, start_guest, subscriber):
    guest = start_guest()
    subscriber.discard()
    with private_libvirt.killed(libvirtd):
        assert subscriber.drain() == []
    assert subscriber.wait_for("lost", "", seconds=10) == "libvirt answers again"
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(SECOND), "--live")
    assert subscriber.wait_for("guest-changed", guest.uuid) == f"vcpu 0 pinned to {SECOND}"


def test_waiting_for_events_polls_nothing(start_guest, subscriber):
    """The threads that wait for libvirt sleep, apart from its keep-alive. The thread of processes wakes for each new
    process of the machine, so it cannot be judged here."""
    start_guest()
    subscriber.discard()
    waiting = [thread.native_id for thread in threading.enumerate() if thread.name.startswith("libvirt-")]
    before = [sleeps(thread) for thread in waiting]
    time.sleep(3)
    assert len(waiting) == 2
    assert all(sleeps(thread) - count < 10 for thread, count in zip(waiting, before, strict=True))


def sleeps(thread):
    """How often the thread has waited (proc(5), voluntary_ctxt_switches)."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_reading_guests_starts_no_event_loop(libvirtd):
    """A command that waits for no events starts no event loop of libvirt: only the thread of calls with a time limit,
    which waits for the next call."""
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from pinner.host.virt.libvirt import Libvirt\n"
        f"Libvirt({libvirtd!r}).guests(Path('/'))\n"
        "print(*sorted(thread.name for thread in threading.enumerate()), sep=', ')\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "MainThread, timed call\n"
    )
