"""The kernel thread that polls a queue (threaded NAPI): a plan moves it as a process, and its mask comes back."""

import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinner.host.inventory import take_snapshot
from pinner.host.kernel import affinity
from pinner.model.change import AffinityChange, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import Request
from pinner.planning.planner import plan

ROOT = Path("/")
ONLINE = sorted(os.sched_getaffinity(0))
CARD = "pnrnapi0"

pytestmark = [
    pytest.mark.needs("root", "two_cpus", "network_cards"),
    pytest.mark.machine("kernel threads are seen in the first PID namespace alone"),
    pytest.mark.skipif(not all(map(shutil.which, ("ip", "ethtool"))), reason="needs ip and ethtool"),
]


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def polled():
    """A virtual card with a NAPI thread."""
    run("ip", "link", "add", CARD, "type", "veth", "peer", "name", "pnrnapi1")
    try:
        run("ethtool", "-K", CARD, "gro", "on")
        run("ip", "link", "set", CARD, "up")
        try:
            Path(f"/sys/class/net/{CARD}/threaded").write_text("1")
        except OSError:
            pytest.skip("this kernel has no threaded NAPI for virtual cards")
        yield
    finally:
        run("ip", "link", "del", CARD)


def test_a_napi_thread_is_moved_and_restored(polled):
    snapshot = take_snapshot(ROOT, "h1", None, sample_seconds=0, now=lambda: datetime.now(UTC))
    (thread,) = [each for each in snapshot.processes if each.name.startswith(f"napi/{CARD}")]
    request = Request(processes=(str(thread.pid),), housekeeping=str(ONLINE[-1]))
    # Other processes of this machine may keep CPUs for themselves.
    made = plan(replace(snapshot, processes=(thread,)), "s", request)
    (change,) = [each for each in made.changes if each.target.owner == str(thread.pid)]
    assert isinstance(change, AffinityChange)
    (before,) = change.before
    affinity.set_affinity(ThreadMask(before.tid, before.started, change.after))
    assert os.sched_getaffinity(thread.pid) == {ONLINE[-1]}
    affinity.set_affinity(before)
    assert CpuSet.of(os.sched_getaffinity(thread.pid)) == before.cpus
