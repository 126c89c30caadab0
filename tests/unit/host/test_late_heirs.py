"""The heirs of real processes, as a host sees them that has scanned before. No affinity is changed."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from pinner.host import affinity, lineage, procfs
from pinner.host.inventory import LIVE
from pinner.host.libvirt import Libvirt
from pinner.host.live import LiveHost
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.lineage import Lineage

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
    assert (host.has_heirs(first, facts, masks), none) == (False, [])
    second, facts, children = parent(2)
    try:
        assert host.has_heirs(second, facts, masks)
        assert {thread.tid for thread in host.heirs(second, facts, masks, {})} == {*children}
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
