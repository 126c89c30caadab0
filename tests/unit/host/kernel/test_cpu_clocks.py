import os
import subprocess
import sys

import pytest
from support.system.kernel import wait_until_asleep

from pinner.host.kernel import affinity, cpu_clocks
from pinner.host.kernel.cpu_clocks import KnownMasks
from pinner.model.change import Target

TARGET = Target("emulator", "uuid-1", None, "g1")
PROGRAM = """
import sys, threading, time
print("ready", flush=True)
for line in sys.stdin:
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    print("done", flush=True)
"""


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        wait_until_asleep(child.pid)
        yield child
        child.kill()


@pytest.fixture
def read(child):
    """Reads the child's masks, and counts how often its files were read."""
    known, files = KnownMasks(), []

    def from_files():
        files.append(1)
        return affinity.masks(child.pid)

    def read():
        found = known.masks(TARGET, affinity.mask(child.pid).key, from_files)
        assert found == affinity.masks(child.pid)
        return len(files)

    return read


def test_the_files_of_a_process_that_sleeps_are_read_once(read):
    assert [read() for _ in range(3)] == [1, 1, 1]


def test_a_mask_that_another_program_sets_is_read(read, child):
    read()
    cpus = os.sched_getaffinity(child.pid)
    os.sched_setaffinity(child.pid, {min(cpus)})
    # The same mask again: it may be known already where this machine has one CPU.
    assert read() == (1 if len(cpus) == 1 else 2)
    os.sched_setaffinity(child.pid, cpus)
    assert read() == (1 if len(cpus) == 1 else 3)


def test_a_thread_that_is_born_is_read(read, child):
    read()
    child.stdin.write(b"more\n")
    child.stdin.flush()
    child.stdout.readline()
    wait_until_asleep(child.pid)
    assert [read(), read()] == [2, 2]


def test_files_are_read_each_time_where_the_process_is_not_known(child):
    known, files = KnownMasks(), []
    for _ in range(2):
        known.masks(TARGET, None, lambda: files.append(1) or affinity.masks(child.pid))
    assert len(files) == 2


def test_files_are_read_each_time_where_the_kernel_gives_no_clock(read, monkeypatch):
    monkeypatch.setattr(cpu_clocks, "ran_ns", lambda _: None)
    assert [read() for _ in range(3)] == [1, 2, 3]
