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
