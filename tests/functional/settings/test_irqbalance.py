"""The banned CPUs of a running irqbalance: read, set, and given back. It cannot move interrupts of this machine."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from pinner.host.kernel import procfs
from pinner.host.settings import irqbalance, table
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.machine.interrupts import Balancer
from pinner.planning.settings.table import commands

ONE = CpuSet.parse("1")
# irqbalance cannot write the affinities of this machine's interrupts.
COMMAND = """\
mount --make-rprivate /
mount --bind /proc/irq /proc/irq
mount -o remount,ro,bind /proc/irq
exec irqbalance --foreground --interval=1 --deepestcache=1
"""

pytestmark = [
    pytest.mark.needs("root", "mounts"),
    pytest.mark.skipif(not shutil.which("irqbalance"), reason="needs irqbalance"),
]


@pytest.fixture
def running():
    irqbalance.FOLDER.mkdir(exist_ok=True)
    environment = {**os.environ, "IRQBALANCE_BANNED_CPULIST": "0"}
    process = subprocess.Popen(["unshare", "--mount", "sh", "-ec", COMMAND], env=environment)
    try:
        yield wait_for_socket(process)
    finally:
        process.terminate()
        process.wait()
        (irqbalance.FOLDER / f"irqbalance{process.pid}.sock").unlink(missing_ok=True)


def wait_for_socket(process):
    for _ in range(100):
        found = Balancer(process.pid, "", None, procfs.started(irqbalance.LIVE, process.pid))
        try:
            irqbalance.banned_cpus(found.target)
        except ApplyFailed:
            assert process.poll() is None, "irqbalance ended: has this machine one CPU?"
            time.sleep(0.1)
        else:
            return found
    raise AssertionError("irqbalance does not answer")


def test_the_cpus_are_banned_and_given_back_and_forgotten_with_the_process(running):
    assert table.state_of(irqbalance.LIVE, running.target) == CpuSet.parse("0")
    table.set_state(irqbalance.LIVE, running.target, ONE)
    assert table.state_of(irqbalance.LIVE, running.target) == ONE
    table.set_state(irqbalance.LIVE, running.target, CpuSet.parse("0"))
    assert table.state_of(irqbalance.LIVE, running.target) == CpuSet.parse("0")


def test_a_request_that_another_one_follows_has_no_effect(running):
    """As after a kill between the request and its effect: an undo sends the former CPUs at once."""
    irqbalance._ask(running.target, b"settings cpus 1")
    irqbalance.set_banned(running.target, CpuSet.parse("0"))
    time.sleep(2.5)  # two looks
    assert irqbalance.banned_cpus(running.target) == CpuSet.parse("0")


def test_a_process_that_has_ended_is_an_error_until_it_is_gone(running):
    os.kill(running.pid, signal.SIGKILL)
    with pytest.raises(ApplyFailed, match="irqbalance does not"):
        for _ in range(50):
            irqbalance.banned_cpus(running.target)
            time.sleep(0.1)
    os.waitpid(running.pid, 0)
    with pytest.raises(Gone):
        irqbalance.banned_cpus(running.target)


def test_the_command_of_the_plan_is_understood(running):
    if not shutil.which("socat"):
        pytest.skip("needs socat")
    (command,) = commands(running.target, ONE)
    subprocess.run(["sh", "-c", command], check=True)
    for _ in range(40):
        if irqbalance.banned_cpus(running.target) == ONE:
            return
        time.sleep(0.1)
    raise AssertionError("the command had no effect")
