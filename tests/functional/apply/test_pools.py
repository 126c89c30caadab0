"""Idle processes that a user restricts to single CPUs, on this machine."""

import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from spare_user import SpareUser, spare_user
from support.values import NOON

from pinner.host.inventory import SnapshotInputs, take_snapshot
from pinner.host.processes.reservations import NO_OWNERS, AffinityOwners
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan

pytestmark = [
    pytest.mark.fault(49),
    pytest.mark.needs("root"),
]
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def account() -> SpareUser:
    return spare_user()


@pytest.fixture
def sleepers(account):
    """An idle process on each CPU, which the user restricted to that CPU, by process id."""
    taskset = shutil.which("taskset")
    with ExitStack() as undo:
        started = {}
        for cpu in CPUS:
            command = [taskset, "-c", str(cpu), "sleep", "600"]
            sleeper = subprocess.Popen(command, user=account.uid, group=account.gid, extra_groups=[])
            undo.callback(sleeper.wait)
            undo.callback(sleeper.kill)
            started[sleeper.pid] = cpu
        deadline = time.monotonic() + 60
        while any(os.sched_getaffinity(pid) != {cpu} for pid, cpu in started.items()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield started


def observe(pids, owners: AffinityOwners = NO_OWNERS) -> Snapshot:
    """This machine with no other process than these."""
    taken = take_snapshot(
        Path("/"), "h1", None, sample_seconds=0.5, now=lambda: NOON, inputs=SnapshotInputs(owners=owners)
    )
    return replace(taken, processes=tuple(each for each in taken.processes if each.pid in pids))


def test_idle_tasksets_of_a_user_on_every_cpu_change_no_set(account, sleepers):
    taken = observe(sleepers)
    assert {(each.user, each.reserves) for each in taken.processes} == {(account.uid, "")}
    assert {each.pid: str(each.threads[0].affinity) for each in taken.processes} == {
        pid: str(cpu) for pid, cpu in sleepers.items()
    }
    made = plan(taken, "s", Request())
    assert made.roles == plan(observe(()), "s", Request()).roles
    assert made.blocked == ""
    (told,) = (warning for warning in made.warnings if "are allocated although" in warning)
    assert f"process sleep ({min(sleepers)}) of user {account.uid} (CPUs {sleepers[min(sleepers)]})" in told


def test_those_of_a_configured_user_block_the_plan_with_their_names(account, sleepers):
    made = plan(observe(sleepers, AffinityOwners.of([f"user:{account.uid}"])), "s", Request())
    assert made.blocked.startswith("restricted affinities leave a role fewer than 1 core of a node: process sleep (")
    assert f"of user {account.uid}" in made.blocked
