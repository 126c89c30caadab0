"""What happens to real guests, processes and cpusets, as it is told by a real libvirtd and the kernel."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import private_libvirt
import pytest
from support.kernel import process
from support.real_guests import FIRST, SECOND, cpuset_of, emulator, iothread, vcpu

from pinner import wiring
from pinner.agent.host_event_queue import HostEventQueue
from pinner.host.events import HostWatcher
from pinner.host.kernel import cpuset_mount
from pinner.model.cpuset import CpuSet

ROOT = Path("/")
QUIET = 0.5
"""Seconds after which what is not told will not be."""


class Listener:
    """A caller of the newsroom: what it has not heard yet."""

    def __init__(self, event_queue, names=()):
        self._event_queue = event_queue
        self._names = names
        self._heard = 0
        self.skip()

    def skip(self):
        """What came so far is not of interest."""
        time.sleep(QUIET)
        for events in self._event_queue.since(self._heard, 0, self._names):
            self._heard = events.seq

    def hear(self, kind, subject, seconds=1.0):
        """The detail of the first such news; fails where it does not come."""
        heard, deadline = [], time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for events in self._event_queue.since(self._heard, left, self._names):
                self._heard = events.seq
                heard.append((events.kind, events.subject))
                if heard[-1] == (kind, subject):
                    return events.detail
        pytest.fail(f"no {kind} of {subject} but {heard}")

    def silence(self):
        """All that comes in a while."""
        found = self._event_queue.since(self._heard, QUIET, self._names)
        self._heard = max((events.seq for events in found), default=self._heard)
        return [(events.kind, events.subject) for events in found]


@pytest.fixture
def placed():
    return []


@pytest.fixture
def nap(tmp_path):
    """The sleep program, under a name that no other process of the machine has."""
    return Path(shutil.copy("/bin/sleep", tmp_path / f"nap-{os.getpid()}"))


@pytest.fixture
def event_queue(libvirtd, host, placed):
    made = HostEventQueue(wiring.now)
    events = HostWatcher(libvirtd, host.own_pins, made, lambda: placed)
    events.start()
    yield made
    events.close()


@pytest.fixture
def listener(event_queue):
    return Listener(event_queue)


def test_a_guests_life(libvirtd, start_guest, listener, tmp_path):
    guest = start_guest(persistent=True)
    assert listener.hear("guest-started", guest.uuid) == "started: booted"
    private_libvirt.virsh(libvirtd, "resume", guest.name)
    private_libvirt.virsh(libvirtd, "reset", guest.name)
    assert listener.hear("guest-changed", guest.uuid) == "reset"
    private_libvirt.virsh(libvirtd, "save", guest.name, str(tmp_path / "saved"))
    assert listener.hear("guest-stopped", guest.uuid) == "stopped: saved"
    private_libvirt.virsh(libvirtd, "restore", str(tmp_path / "saved"))
    assert listener.hear("guest-started", guest.uuid) == "started: restored"
    private_libvirt.virsh(libvirtd, "destroy", guest.name)
    assert listener.hear("guest-stopped", guest.uuid) == "stopped: destroyed"
    private_libvirt.virsh(libvirtd, "undefine", guest.name)
    assert listener.silence() == []


def test_another_writers_pins_are_told_and_ours_are_not(libvirtd, start_guest, host, listener):
    guest = start_guest()
    listener.skip()
    host.pin(vcpu(guest), FIRST, persist=False)
    host.pin(emulator(guest), SECOND, persist=False)
    host.pin(iothread(guest), FIRST, persist=False)
    assert listener.silence() == []
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(SECOND), "--live")
    private_libvirt.virsh(libvirtd, "iothreadpin", guest.name, "1", str(SECOND), "--live")
    assert listener.hear("guest-changed", guest.uuid) == f"vcpu 0 pinned to {SECOND}; iothread 1 pinned to {SECOND}"


def test_what_is_plugged_in(libvirtd, start_guest, listener):
    guest = start_guest(vcpus=3, plugged=1, paused=False)
    listener.skip()
    private_libvirt.virsh(libvirtd, "setvcpus", guest.name, "2", "--live")
    assert listener.hear("guest-changed", guest.uuid).startswith("new threads: CPU 1/")
    private_libvirt.virsh(libvirtd, "iothreadadd", guest.name, "2", "--live")
    assert "IO iothread2" in listener.hear("guest-changed", guest.uuid)


@pytest.mark.fault(20)
def test_a_cpuset_that_is_written_behind_libvirts_back(start_guest, host, listener):
    guest = start_guest()
    host.pin(vcpu(guest), FIRST, persist=False)
    listener.skip()
    folder = cpuset_of(next(each.thread.tid for each in guest.vcpus))
    (folder / "cpuset.cpus").write_text(str(SECOND))
    subject = str(folder.relative_to(cpuset_mount(ROOT).folder))
    assert listener.hear("cpuset-written", subject) == f"CPUs {SECOND}"
    (folder / "cpuset.cpus").write_text(str(FIRST))
    assert listener.silence() == []


def test_a_guest_that_is_to_be_left_alone(libvirtd, libvirt, host, start_guest, listener):
    guest = start_guest(persistent=True)
    for excluded in (True, True, False, False):
        listener.skip()
        libvirt.set_excluded(guest.uuid, excluded=excluded)
        found = next(each for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)
        assert found.excluded is (guest.uuid in host.bounds().excluded) is excluded
        assert (
            "urn:pinner:domain:1" in private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", guest.name)
        ) is excluded
    libvirt.set_excluded(guest.uuid, excluded=True)
    assert listener.hear("guest-changed", guest.uuid) == "metadata"


def test_a_process_of_a_watched_name_that_begins_out_of_place(event_queue, placed, nap):
    listener = Listener(event_queue, (nap.name,))
    for expected in ({"process-started"}, set()):
        with subprocess.Popen([nap, "0.3"]) as child:
            # Once or twice: on a busy machine the birth and the new name are told apart.
            assert {kind for kind, subject in listener.silence() if subject == str(child.pid)} == expected
        placed.append(CpuSet.of(os.sched_getaffinity(0)))


def test_a_process_that_began_before_anybody_asked_for_it(event_queue, nap):
    with subprocess.Popen([nap, "3"]) as child:
        time.sleep(QUIET)
        assert event_queue.since(0, 0, (nap.name,)) == ()
        (events,) = (events for events in event_queue.since(0, 1, (nap.name,)) if events.subject == str(child.pid))
        child.kill()
    assert events.kind == "process-started"


def test_a_process_that_takes_a_watched_name(event_queue):
    listener = Listener(event_queue, ("pinner-probe",))
    code = "open('/proc/self/comm', 'w').write('pinner-probe'); print('ready', flush=True); import time; time.sleep(9)"
    with process(code) as pid:
        assert listener.hear("process-started", str(pid)) == "pinner-probe"


def test_a_libvirtd_that_was_killed_and_comes_back(libvirtd, start_guest, listener):
    guest = start_guest()
    listener.skip()
    with private_libvirt.killed(libvirtd):
        assert listener.silence() == []
    assert listener.hear("lost", "", seconds=10) == "libvirt answers again"
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(SECOND), "--live")
    assert listener.hear("guest-changed", guest.uuid) == f"vcpu 0 pinned to {SECOND}"


def test_listening_costs_nothing_while_nothing_happens(start_guest, listener):
    start_guest()
    listener.skip()
    before = time.process_time()
    time.sleep(3)
    assert time.process_time() - before < 0.03


def test_who_only_asks_does_not_listen(libvirtd):
    """A command without events has neither libvirt's event loop nor a thread."""
    code = (
        "import sys, threading; from pathlib import Path\n"
        "from pinner.host.libvirt import Libvirt\n"
        f"Libvirt({libvirtd!r}).guests(Path('/')); print(threading.active_count())\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
