"""The inheritors of real processes, as a host sees them that has scanned before. No affinity is changed."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from pinner.host.inventory import LIVE
from pinner.host.kernel import affinity, procfs
from pinner.host.live import LiveHost
from pinner.host.processes import lineage
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import Descendants, Lineage

pytestmark = pytest.mark.fault(50)
FORKS = """
import os, sys, time
for line in sys.stdin:
    if (child := os.fork()) == 0:
        os.close(0), os.close(1)
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
"""


@pytest.fixture(autouse=True)
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan leaves out what other programs have started meanwhile: they fork, too."""
    word, since, scan = f"PINNER_TEST={uuid4().hex}", lineage.ticks(), lineage.scan
    monkeypatch.setenv(*word.split("="))

    def is_own(pid: int) -> bool:
        with suppress(OSError):
            return word.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def own_scan() -> dict[int, lineage.Relative]:
        return {pid: each for pid, each in scan().items() if each.started < since or is_own(pid)}

    monkeypatch.setattr(lineage, "scan", own_scan)


def parent(children: int) -> tuple[Target, Lineage, list[int]]:
    """A process that has forked and then ended, with its lineage from before, and the ids of its children."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        started = procfs.started(LIVE, process.pid)
        facts = lineage.read(None)
        forked, _ = process.communicate("fork\n" * children, 10)
    return Target("process", str(process.pid), started, "forks"), facts, [int(line) for line in forked.split()]


def test_children_of_a_process_that_began_and_ended_after_the_last_scan_are_found(monkeypatch):
    monkeypatch.setattr(lineage, "_main_mask", lambda pid: CpuSet(pid))  # init has another mask than the children
    host = LiveHost(Libvirt("test:///default"))
    masks = frozenset({affinity.mask(os.getpid()).cpus})
    first, facts, none = parent(0)
    assert (host.has_inheritors(first, facts, masks), none) == (False, [])
    second, facts, children = parent(2)
    try:
        assert host.has_inheritors(second, facts, masks)
        assert {thread.tid for thread in host.inheritors(second, facts, masks, {}).sure} == {*children}
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


ADOPTS = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
read, write = os.pipe()
if (placed := os.fork()) == 0:
    sys.stdin.readline()
    if (middle := os.fork()) == 0:
        if (child := os.fork()) == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
        os.write(write, b"%d" % child)
        os._exit(0)
    os.waitpid(middle, 0)
    os.read(0, 1)
    os._exit(0)
print(placed, flush=True)
print(int(os.read(read, 20)), flush=True)
time.sleep(60)
"""


def test_a_fork_that_a_process_of_the_same_program_adopted(monkeypatch):
    """It is found where the other process was placed later, and unsure where nobody knows its mask's owner."""
    monkeypatch.setattr(lineage, "_main_mask", lambda pid: CpuSet.of([0]))  # all have the same mask
    masks = frozenset({affinity.mask(os.getpid()).cpus})
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ADOPTS]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as adopts:
        pids = [adopts.pid]
        try:
            pids.append(int(adopts.stdout.readline()))
            started = procfs.started(LIVE, pids[1])
            facts = lineage.read(pids[1])
            adopts.stdin.write("\n")
            adopts.stdin.flush()
            pids.append(int(adopts.stdout.readline()))
            deadline = time.monotonic() + 60
            while lineage.scan()[pids[2]].parent != adopts.pid:
                assert time.monotonic() < deadline
                time.sleep(0.01)

            def found(others):
                return lineage.inheritors(pids[1], started, facts, masks, others, lineage.scan())

            adopting = lineage.scan()[adopts.pid].key
            since = procfs.started(LIVE, pids[2])
            assert {thread.tid for thread in found({}).unsure} == {pids[2]}
            assert {thread.tid for thread in found({adopting: since + 1}).sure} == {pids[2]}
            assert found({adopting: facts.since - 1}) == Descendants()
        finally:
            for pid in reversed(pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
