"""A real process and its child, placed by two runs: the runs are undone in any order."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from support.guests.real_guests import FIRST, ONLINE, SECOND, apply, change, daemon, plan_of
from support.system.kernel import allowed
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.cpuset import CpuSet

pytestmark = [
    pytest.mark.needs("root", "two_cpus"),
    pytest.mark.fault(50),
]

PARENT = """
import subprocess, sys
for line in sys.stdin:
    print(subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid, flush=True)
"""


TWO_THREADS = """
import threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def live() -> LiveHost:
    return LiveHost(Libvirt("qemu:///system"))


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that starts a program for each line."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("order", [("run-1", "run-2"), ("run-2", "run-1"), ("run-1", "")])
def test_no_order_of_rollbacks_leaves_a_mask_behind(live, journal, parent, order):
    plan = plan_of(live, [change(live, daemon(parent.pid), FIRST)])
    assert apply(plan, live, journal).state == "applied"
    time.sleep(0.02)  # two clock ticks: a child starts later than the change
    parent.stdin.write("start\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    try:
        assert allowed(child) == str(FIRST)
        plan = plan_of(live, [change(live, daemon(child), SECOND)])
        assert apply(plan, live, journal, run="run-2").state == "applied"
        for number, undoes in enumerate(order):
            run = make_run(f"back-{number}", kind="rollback", plan="", undoes=undoes)
            ended = executor.rollback(run, live, journal, lambda: NOON, lambda *_: None)
            assert (ended.state, ended.error) == ("rolled_back", "")
        assert {allowed(pid) for pid in (parent.pid, child)} == {str(CpuSet.of(ONLINE))}
    finally:
        os.kill(child, 9)


def test_a_run_that_moved_one_thread_back_restores_no_mask_of_the_run_before(live, journal):
    """Another program moves the first thread of two. The second one keeps the mask of the first run meanwhile."""
    with subprocess.Popen([sys.executable, "-c", TWO_THREADS], stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            target = daemon(process.pid)
            first, second = (thread.tid for thread in live.masks(target))
            for run, moved in (("run-1", True), ("run-2", False)):
                plan = plan_of(live, [change(live, target, FIRST)])
                assert apply(plan, live, journal, run=run).state == "applied"
                if moved:
                    os.sched_setaffinity(first, SECOND)
            for number, undoes in enumerate(("run-1", "")):
                run = make_run(f"back-{number}", kind="rollback", plan="", undoes=undoes)
                executor.rollback(run, live, journal, lambda: NOON, lambda *_: None)
                if undoes:
                    plan = plan_of(live, [change(live, target, FIRST)])
                    assert apply(plan, live, journal, run="run-3").state == "applied"
            assert allowed(second) == str(CpuSet.of(ONLINE))
        finally:
            process.kill()
