"""Which processes keep the CPUs of their restricted affinity, whatever they do."""

import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.roots import process, two_nodes, write

from pinner.host.kernel import procfs
from pinner.host.kernel.procfs import CAP_SYS_NICE
from pinner.host.processes import sampling
from pinner.host.processes.immovable import classify
from pinner.host.processes.reservations import AffinityOwners, with_reservations
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import STANDING_SECONDS, CpuLimit

ALL = CpuSet.parse("0-6")
LIVE = Path("/")
RESTRICTED = 10
"""A process id."""
MAP = "         0          0 4294967295\n"
pytestmark = pytest.mark.fault(49)


def observe(root, owners=(), uptime=None):
    """The process that is restricted to CPU 3."""
    found = classify(sampling.Sampler(root).second(), guests=(), own=(), baseline=ALL, placed=())
    return next(
        each for each in with_reservations(root, found, AffinityOwners.of(owners), uptime) if each.pid == RESTRICTED
    )


def read(root, owners=(), uptime=None, run_ns=0):
    """Its user and its reason."""
    write(root, {f"proc/10/{where}schedstat": f"{run_ns} 70 3\n" for where in ("", "task/10/")})
    made = observe(root, owners, uptime)
    return made.user, made.reserves


@pytest.mark.parametrize(
    ("users", "capabilities", "id_map", "expected"),
    [
        ("0 0 0 0", 0, MAP, (0, "privileged")),
        ("1001 1001 1001 1001", 0, MAP, (1001, "")),
        ("1001 1001 1001 1001", CAP_SYS_NICE, MAP, (1001, "privileged")),
        ("1001 1001 1001 1001", CAP_SYS_NICE >> 1, MAP, (1001, "")),
        # A user namespace gives its maker every capability in it, and none on the host.
        ("1001 1001 1001 1001", (1 << 41) - 1, "0 1001 1\n", (1001, "")),
        # passwd(1) that waits for its user: root's rights, but the affinity of the user's shell.
        ("1001 0 0 0", (1 << 41) - 1, MAP, (1001, "")),
    ],
)
def test_an_administrators_process_is_privileged(tmp_path, users, capabilities, id_map, expected):
    process(tmp_path, 10, cpus="3", users=users, capabilities=capabilities)
    write(tmp_path, {"proc/10/uid_map": id_map})
    assert read(tmp_path) == expected


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        (("busy",), "configured"),
        (("other", "user:1001"), "configured"),
        ((f"user:{pwd.getpwuid(0).pw_name}", "other"), ""),
        (("user:no-such-user",), ""),
    ],
)
def test_the_configuration_names_processes_and_users(tmp_path, owners, expected):
    process(tmp_path, 10, cpus="3")
    assert read(tmp_path, owners) == (1001, expected)


@pytest.mark.parametrize(
    ("run_ns", "expected"),
    [(3_000_000_000, "worked"), (1_900_000_000, ""), (0, "")],
)
def test_a_thread_that_used_more_than_two_per_cent_since_it_started_has_worked(tmp_path, run_ns, expected):
    process(tmp_path, 10, cpus="3", started=100 * procfs.HERTZ)
    assert read(tmp_path, uptime=200.0, run_ns=run_ns) == (1001, expected)


def test_a_thread_that_has_just_started_has_not_worked(tmp_path):
    process(tmp_path, 10, cpus="3", started=100 * procfs.HERTZ)
    assert read(tmp_path, uptime=100.1, run_ns=90_000_000) == (1001, "")


SESSION = "0::/user.slice/user-0.slice/session-1.scope\n"
SERVICE = "0::/system.slice/ci-runner.service\n"
STARTED = 1000.0
"""Seconds after the boot, of the restricted process."""


@pytest.mark.parametrize(
    ("age", "cgroup", "oldest", "owners", "expected"),
    [
        (0.0, SESSION, 1.0, (), True),
        (STANDING_SECONDS - 1, SESSION, 1.0, (), True),
        (STANDING_SECONDS, SESSION, 1.0, (), False),
        # A job of a service that has long been running, and a daemon that has just been restarted.
        (5.0, SERVICE, STARTED - STANDING_SECONDS, (), True),
        (5.0, SERVICE, STARTED - STANDING_SECONDS + 1, (), False),
        # Whatever starts together in a session is no service.
        (5.0, SESSION, STARTED, (), True),
        (5.0, SESSION, 1.0, ("busy",), False),
        (5.0, SESSION, 1.0, ("user:0",), False),
    ],
)
def test_a_restriction_stands_since_its_process_or_its_service_started(tmp_path, age, cgroup, oldest, owners, expected):
    process(tmp_path, 9, cgroup=cgroup, started=int(oldest * procfs.HERTZ))
    process(tmp_path, 10, cpus="3", users="0 0 0 0", cgroup=cgroup, started=int(STARTED * procfs.HERTZ))
    made = observe(tmp_path, owners, STARTED + age)
    assert (made.reserves, made.recent) == ("configured" if owners else "privileged", expected)


def test_a_captured_machine_has_no_recent_process(tmp_path):
    process(tmp_path, 10, cpus="3", cgroup=SESSION)
    assert not observe(tmp_path).recent


def test_a_process_that_has_got_the_id_of_another_one_since_gives_it_no_privilege(tmp_path):
    process(tmp_path, 10, cpus="3")
    found = classify(sampling.Sampler(tmp_path).second(), guests=(), own=(), baseline=ALL, placed=())
    process(tmp_path, 10, cpus="3", users="0 0 0 0", started=found[0].started + 1)
    (made,) = with_reservations(tmp_path, found, AffinityOwners(), None)
    assert (made.user, made.reserves) == (None, "")


def test_only_restricted_processes_are_read(tmp_path):
    process(tmp_path, 10, cpus="0-6", users="0 0 0 0")
    assert read(tmp_path) == (None, "")


def test_a_status_file_without_users_tells_nothing(tmp_path):
    process(tmp_path, 10, cpus="3")
    status = "Name:\tx\nCpus_allowed_list:\t3\n"
    write(tmp_path, {"proc/10/status": status, "proc/10/task/10/status": status})
    assert read(tmp_path) == (None, "")


def test_a_running_process_that_works_is_found():
    cpu = min(os.sched_getaffinity(0))
    worker = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"]
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            found = [each for each in sampling.Sampler(LIVE).second() if each.pid == worker.pid]
            found = classify(found, guests=(), own=(), baseline=CpuSet.of(range(8192)), placed=())
            uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
            (made,) = with_reservations(LIVE, found, AffinityOwners(), uptime)
            expected = "privileged" if os.geteuid() == 0 else "worked"
            if made.reserves == expected or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert (made.user, made.reserves) == (os.getuid(), expected)
    finally:
        worker.kill()
        worker.wait()


def test_a_restricted_process_has_the_limits_of_its_cgroup(tmp_path):
    root = two_nodes(tmp_path)
    process(root, 10, cpus="3", cgroup="0::/ceph.slice/osd.service\n")
    effective = {"": "0-6", "/ceph.slice": "3", "/ceph.slice/osd.service": "3"}
    write(root, {f"sys/fs/cgroup{path}/cpuset.cpus.effective": cpus for path, cpus in effective.items()})
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    write(root, {"proc/mounts": mounts, "sys/fs/cgroup/cgroup.controllers": "cpuset\n"})
    found = classify(sampling.Sampler(root).second(), guests=(), own=(), baseline=ALL, placed=())
    (made,) = with_reservations(root, found, AffinityOwners(), None)
    assert made.cpu_limits == (CpuLimit("ceph.slice", CpuSet.parse("3")),)
