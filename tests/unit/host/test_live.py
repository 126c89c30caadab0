"""This machine, asked by several threads at once."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pinner.host import live
from pinner.host.live import LiveHost
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed
from pinner.model.machine.process import Lineage

OURS, OTHER = "6f1f5d6e-0000-4000-8000-000000000001", "6f1f5d6e-0000-4000-8000-000000000002"
EMULATOR = Target("emulator", OURS, None, "web-1")


@pytest.fixture
def other() -> Iterator[int]:
    """The process id of another guest."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_a_guest_is_found_while_another_thread_asks_for_it(monkeypatch, other):
    host = LiveHost(SimpleNamespace(users={}))
    found = SimpleNamespace(qemus={OURS: os.getpid(), OTHER: other})
    monkeypatch.setattr(live.qemu, "find", lambda *_: found)
    started, asks, answered = live.procfs.started, threading.Event(), threading.Event()
    second = threading.Thread(target=lambda: host.masks(EMULATOR))

    def slow(root, pid):
        if threading.current_thread() is second:
            asks.set()
            answered.wait(60)
        elif pid == other:  # the first thread has found our guest already
            second.start()
            asks.wait(60)
        return started(root, pid)

    monkeypatch.setattr(live.procfs, "started", slow)
    try:
        assert host.masks(EMULATOR)
    finally:
        answered.set()
        second.join()


@pytest.mark.parametrize("absent", ["4-5", "3-4"], ids=["all", "some"])
def test_libvirt_gets_no_pin_to_a_cpu_that_is_not_online(monkeypatch, absent):
    """It drops such CPUs silently, and a pin that it refuses may still have changed the host."""
    pinned = []
    host = LiveHost(SimpleNamespace(pin=lambda *call, **_: pinned.append(call)))
    monkeypatch.setattr(host, "online", lambda: CpuSet.parse("0-3"))
    with pytest.raises(ApplyFailed, match=r"are not online \(online: 0-3\)"):
        host.pin(EMULATOR, CpuSet.parse(absent), persist=False)
    assert pinned == []


def test_a_scan_serves_for_a_second_but_for_no_process_that_got_its_mask_since_its_begin(monkeypatch):
    scans = []
    monkeypatch.setattr(live.lineage, "ticks", lambda: 1000)
    monkeypatch.setattr(live.lineage, "scan", lambda: scans.append(1) or {})
    host, process = LiveHost(SimpleNamespace()), Target("process", "1", 5, "ended")
    counts = []
    for since in (999, 999, 1000, 1001):
        assert not host.has_inheritors(process, Lineage("another boot", since), ())
        counts.append(len(scans))
    assert counts == [1, 1, 2, 3]
