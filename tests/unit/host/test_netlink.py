"""The kernel itself is tried: its process connector and its uevents."""

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.kernel import BEARING, process

from pinner.host.netlink import Began, Born, CpuChanged, CpuEvents, Lost, ProcessEvents
from pinner.model.errors import NotPermitted

CPU = max(os.sched_getaffinity(0))
UEVENT = Path(f"/sys/devices/system/cpu/cpu{CPU}/uevent")


def opened(kind):
    try:
        return closing(kind())
    except NotPermitted as error:
        pytest.skip(str(error))


def read(source, until, seconds=5.0):
    """All that is told until ``until`` is among it."""
    found = []
    deadline = time.monotonic() + seconds
    while until not in found and time.monotonic() < deadline:
        found += source.read()
        time.sleep(0.01)
    return found


def test_programs_and_threads_that_begin_are_told():
    with opened(ProcessEvents) as events:
        child = subprocess.Popen(["true"])
        child.wait()
        thread = threading.Thread(target=time.sleep, args=(0,))
        thread.start()
        thread.join()
        born = Born(os.getpid(), thread.native_id)
        found = read(events, born)
    assert Began(child.pid) in found
    assert born in found


def test_forks_and_ends_are_not_told():
    with opened(ProcessEvents) as events:
        children = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(5)]
        for child in children:
            os.waitpid(child, 0)
        time.sleep(0.1)
        found = [each for each in events.read() if each.pid in children]
    assert sorted(found) == sorted(Began(child) for child in children)


def test_a_main_threads_new_name_is_told_but_not_another_threads():
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
        found = read(events, Began(child.pid))
        child.communicate(b"\n")
        found += events.read()
    mine = [each for each in found if each.pid == child.pid]
    assert [type(each) for each in mine if isinstance(each, Began)] == [Began]


def test_what_is_told_faster_than_it_is_read_is_lost_and_said_so():
    with opened(ProcessEvents) as events, process(BEARING):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(2)
            found = list(events.read())
            if Lost("process events") in found:
                break
        assert Lost("process events") in found


def test_a_container_is_told_so_although_it_hears_what_others_are_told():
    code = (
        "from pinner.host.netlink import ProcessEvents\n"
        "from pinner.model.errors import NotPermitted\n"
        "try: ProcessEvents()\n"
        "except NotPermitted as error: print(error)\n"
    )
    contained = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code]
    with opened(ProcessEvents), process(BEARING):
        done = subprocess.run(contained, capture_output=True)
    if b"unshare" in done.stderr:
        pytest.skip("no user namespaces here")
    assert b"process events: the kernel's process connector" in done.stdout, done.stderr


@pytest.mark.skipif(not os.access(UEVENT, os.W_OK), reason="needs the right to write a uevent file")
@pytest.mark.parametrize("action", ["offline", "online"])
def test_cpus_are_told(action):
    """The kernel sends the event of an action when it is asked to (ABI/testing/sysfs-uevent); no CPU is touched."""
    with opened(CpuEvents) as events:
        UEVENT.write_text("change")
        UEVENT.write_text(action)
        assert read(events, CpuChanged(CPU, action)) == [CpuChanged(CPU, action)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_process_that_plays_the_kernel_is_not_heeded():
    with opened(CpuEvents) as events, socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15) as liar:
        liar.bind((0, 0))
        liar.sendto(b"offline@/devices/system/cpu/cpu0\0ACTION=offline\0", (0, 1))
        time.sleep(0.1)
        assert list(events.read()) == []
