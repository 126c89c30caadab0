"""The real kernel's process connector and uevents."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support import needs
from support.system import another_user
from support.system.kernel import THREAD_CHURN, process

from pinner.host.kernel.netlink import (
    CpuChanged,
    CpuEvents,
    EventsLost,
    ProcessEvents,
    ProgramStarted,
    ThreadCreated,
)

CPU = max(os.sched_getaffinity(0))
UEVENT = Path(f"/sys/devices/system/cpu/cpu{CPU}/uevent")


def opened(kind):
    if kind is ProcessEvents:
        needs.require("process_connector")
    return closing(kind())


def read(source, until, seconds=5.0):
    """The events that ``source`` reports, up to and including ``until``."""
    found = []
    deadline = time.monotonic() + seconds
    while until not in found and time.monotonic() < deadline:
        found += source.read()
        time.sleep(0.01)
    return found


def test_new_programs_and_threads_are_reported():
    with opened(ProcessEvents) as events:
        child = subprocess.Popen(["true"])
        child.wait()
        thread = threading.Thread(target=time.sleep, args=(0,))
        thread.start()
        thread.join()
        created = ThreadCreated(os.getpid(), thread.native_id)
        found = read(events, created)
    assert ProgramStarted(child.pid) in found
    assert created in found


def test_forks_and_exits_are_not_reported():
    with opened(ProcessEvents) as events:
        children = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(5)]
        for child in children:
            os.waitpid(child, 0)
        time.sleep(0.1)
        found = [each for each in events.read() if each.pid in children]
    assert sorted(found) == sorted(ProgramStarted(child) for child in children)


def test_a_new_name_is_reported_for_the_main_thread_only():
    code = (
        "import threading, pathlib, sys; print('ready', flush=True); sys.stdin.readline()\n"
        "other = threading.Thread(target=lambda: pathlib.Path('/proc/thread-self/comm').write_text('other'))\n"
        "other.start(); other.join()\n"
        "pathlib.Path('/proc/self/comm').write_text('renamed'); sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child, ExitStack() as undo:
        assert child.stdout.readline()
        events = undo.enter_context(opened(ProcessEvents))
        child.stdin.write(b"\n")
        child.stdin.flush()
        found = read(events, ProgramStarted(child.pid))
        child.communicate(b"\n")
        found += events.read()
    mine = [each for each in found if each.pid == child.pid]
    assert [type(each) for each in mine if isinstance(each, ProgramStarted)] == [ProgramStarted]


def test_lost_events_are_reported():
    """The process creates threads faster than the test reads their events."""
    with opened(ProcessEvents) as events, process(THREAD_CHURN):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(2)
            found = list(events.read())
            if EventsLost("process events") in found:
                break
        assert EventsLost("process events") in found


def test_a_container_is_refused_although_its_socket_receives_answers_to_others():
    imports = "from pinner.host.kernel.netlink import ProcessEvents\nfrom pinner.model.errors import NotPermitted\n"
    code = "try: ProcessEvents()\nexcept NotPermitted as error: print(error)\n"
    with opened(ProcessEvents), process(THREAD_CHURN):
        done = another_user.run_in_container(imports, code)
    if another_user.NO_CONTAINER in done.stderr:
        pytest.skip(done.stderr)
    assert "process events: the kernel's process connector" in done.stdout, done.stderr


@pytest.mark.needs("uevents")
@pytest.mark.parametrize("action", ["offline", "online"])
def test_cpu_changes_are_reported(action):
    """The kernel sends an action's event when a program writes its name (ABI/testing/sysfs-uevent); no CPU changes."""
    with opened(CpuEvents) as events:
        UEVENT.write_text("change")
        UEVENT.write_text(action)
        assert read(events, CpuChanged(CPU, action)) == [CpuChanged(CPU, action)]


@pytest.mark.needs("forge_uevents")
def test_messages_of_other_processes_are_ignored():
    with opened(CpuEvents) as events, socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15) as forger:
        forger.bind((0, 0))
        forger.sendto(b"offline@/devices/system/cpu/cpu0\0ACTION=offline\0", (0, 1))
        time.sleep(0.1)
        assert list(events.read()) == []
