import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import needs
from support.roots import kernel_thread, process, stat, write

from pinner import codec
from pinner.host.kernel import procfs
from pinner.host.processes import sampling
from pinner.model.errors import Gone
from pinner.model.machine.process import Process

LIVE = Path("/")
BUSY = "import threading\nprint('ready', flush=True)\nwhile True: pass"


class FakeClock:
    """A clock that advances only in ``sleep``, which also calls ``meanwhile``."""

    def __init__(self, meanwhile=lambda: None):
        self.time = 50.0
        self.meanwhile = meanwhile

    def sleep(self, seconds):
        self.time += seconds
        self.meanwhile()

    def __call__(self):
        return self.time


def sampled(root, meanwhile=lambda: None, seconds=2.0):
    clock = FakeClock(meanwhile)
    return {process.pid: process for process in sampling.sample(root, seconds, clock.sleep, clock)}


def ticks(seconds):
    return round(seconds * procfs.HERTZ)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"sshd", "sshd"),
        (b"a b", "a b"),
        (b"(sd-pam)", "(sd-pam)"),
        (b") R 1 (", ") R 1 ("),
        (b"new\nline", "new\nline"),
        (b"\x1b[31m<b>", "\x1b[31m<b>"),
        (b"\xff", "\\xff"),
        (b"", ""),
    ],
)
def test_a_name_ends_at_the_last_parenthesis(name, expected):
    assert procfs.parse_stat(stat(7, name, ticks=9, started=4, flags=64)) == (expected, 64, 9, 1, 4, "")


@given(st.binary(max_size=15))
def test_any_name_gives_the_same_numbers(name):
    assert procfs.parse_stat(stat(7, name, ticks=9, started=4, flags=64))[1:] == (64, 9, 1, 4, "")


@pytest.mark.parametrize(
    ("priority", "policy", "expected"),
    [
        (20, 0, ""),
        (39, 3, ""),
        (-2, 1, "fifo"),
        (-100, 2, "rr"),
        (-101, 6, "deadline"),
        # A thread that holds a lock for which a real-time thread waits.
        (-51, 0, ""),
    ],
)
def test_the_real_time_policy_of_a_thread(priority, policy, expected):
    data = stat(7, b") R 1 (", priority=priority, policy=policy, started=4)
    assert procfs.parse_stat(data).realtime == expected
    assert procfs.parse_stat(data).started == 4


@pytest.mark.parametrize(("policy", "expected"), [(os.SCHED_FIFO, "fifo"), (os.SCHED_RR, "rr"), (os.SCHED_BATCH, "")])
def test_the_real_time_policy_of_a_running_thread(policy, expected):
    if expected:
        needs.require("realtime")
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        os.sched_setscheduler(sleeper.pid, policy, os.sched_param(1 if expected else 0))
        assert [thread.realtime for thread in procfs.threads_of(LIVE, sleeper.pid)] == [expected]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_loads_are_per_cent_of_one_cpu(tmp_path):
    process(tmp_path, 10, ticks=ticks(100), threads=(11,))

    def meanwhile():
        process(tmp_path, 10, ticks=ticks(101), threads=(11,))
        write(tmp_path, {"proc/10/stat": stat(10, ticks=ticks(103))})

    found = sampled(tmp_path, meanwhile)[10]
    assert [(thread.tid, thread.load) for thread in found.threads] == [(10, 50.0), (11, 50.0)]
    # A thread that ran for a second and ended is counted only in the stat of its process.
    assert found.load == 150.0


def test_all_fields_of_a_process(tmp_path):
    process(tmp_path, 10, name=b"a\nb", command=b"/bin/x\0two words\0\xff\0", cpus="0,2-3", started=77)
    found = sampled(tmp_path, seconds=0)[10]
    assert (found.name, found.started, found.command, found.unit, found.kernel, found.load, found.immovable_reason) == (
        "a\nb",
        77,
        "/bin/x two words \\xff",
        "busy.service",
        False,
        0.0,
        "",
    )
    (thread,) = found.threads
    assert (thread.tid, thread.started, thread.name, str(thread.affinity)) == (10, 77, "a\nb", "0,2-3")
    assert (thread.run_ns, thread.delay_ns, thread.load) == (5000, 70, 0.0)
    assert codec.load(Process, codec.dump(found)) == found


def test_kernel_threads(tmp_path):
    kernel_thread(tmp_path, 2, b"kthreadd")
    kernel_thread(tmp_path, 20, b"ksoftirqd/0", bound=True)
    found = sampled(tmp_path, lambda: write(tmp_path, {"proc/2/stat": stat(2, b"kthreadd", ticks(1), flags=1 << 21)}))
    assert (found[2].kernel, found[2].command, found[2].unit, found[2].load) == (True, "", "", 50.0)
    assert [thread.load for thread in found[2].threads] == [50.0]
    assert [thread.immovable_reason for pid in (2, 20) for thread in found[pid].threads] == ["", "per-cpu"]


def test_a_reused_id_is_another_process(tmp_path):
    process(tmp_path, 10, ticks=ticks(90), started=1)
    found = sampled(tmp_path, lambda: process(tmp_path, 10, ticks=ticks(1), started=2))[10]
    assert (found.load, found.threads[0].load, found.started) == (50.0, 50.0, 2)


def test_the_load_of_new_processes_and_threads_counts_from_their_start(tmp_path):
    process(tmp_path, 10, ticks=ticks(1))

    def meanwhile():
        process(tmp_path, 12, ticks=ticks(0.5))
        process(tmp_path, 10, ticks=ticks(1), threads=(11,))

    found = sampled(tmp_path, meanwhile)
    assert (found[12].load, found[10].load) == (25.0, 0.0)
    assert [thread.load for thread in found[10].threads] == [0.0, 50.0]


@pytest.mark.parametrize("lost", ["stat", "status", "task/10/stat", "task/10/status"])
@pytest.mark.parametrize("content", [None, b"", b"cut (of"])
def test_a_process_that_vanishes_during_the_read_is_left_out(tmp_path, lost, content):
    process(tmp_path, 10)
    process(tmp_path, 20)

    def meanwhile():
        path = tmp_path / "proc/10" / lost
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    found = sampled(tmp_path, meanwhile)
    # The status files of the threads are read, and not that of the process.
    assert set(found) == ({10, 20} if lost == "status" else {20})


def test_without_cgroups_and_schedstats(tmp_path):
    process(tmp_path, 10)
    for name in ("cgroup", "cmdline", "task/10/schedstat"):
        (tmp_path / "proc/10" / name).unlink()
    found = sampled(tmp_path)[10]
    assert (found.unit, found.command) == ("", "")
    assert (found.threads[0].run_ns, found.threads[0].delay_ns) == (None, None)


def test_a_root_without_processes(tmp_path):
    assert sampled(tmp_path) == {}


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/ssh.service\n", "ssh.service"),
        ("0::/\n", ""),
        ("", ""),
        (
            "0::/user.slice/user-0.slice/user@0.service/app.slice/run-1.scope\n",
            "/user.slice/user-0.slice/user@0.service/app.slice/run-1.scope",
        ),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/libvirtd.service\n",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/libvirtd.service",
        ),
        (
            "0::/machine.slice/c1.scope/payload/system.slice/ssh.service\n",
            "/machine.slice/c1.scope/payload/system.slice/ssh.service",
        ),
        ("0::/system.slice/system-ceph.slice/ceph@1.service/below\n", "ceph@1.service"),
        ("0::/system.slice/-Hroot@there.service\n", "/system.slice/-Hroot@there.service"),
        ("0::/system.slice/*.service\n", "/system.slice/*.service"),
        ("0::/_cpu.slice/_io.service\n", "io.service"),
        ("0::/system.slice/_-Hroot.service\n", "/system.slice/_-Hroot.service"),
        ("0::/nomad.slice/share.slice/job.scope\n", "/nomad.slice/share.slice/job.scope"),
        ("0::/nomad.slice/nomad-share.slice/job.scope\n", "job.scope"),
        ("0::/lxc.payload.a.slice/system.slice/sshd.service\n", "/lxc.payload.a.slice/system.slice/sshd.service"),
        ("0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator\n", "machine-qemu\\x2d1\\x2dvm.scope"),
        ("3:cpuset:/x\n1:name=systemd:/system.slice/cron.service\n0::/system.slice/cron.service\n", "cron.service"),
        ("3:cpuset:/machine/qemu-1.libvirt-qemu/vcpu0\n2:cpu:/machine\n", "/machine/qemu-1.libvirt-qemu/vcpu0"),
        ("3:cpuset:/a.service\n0::/plain\n", "/a.service"),
        ("2:cpu:/with:colon\n", "/with:colon"),
        ("junk\n", ""),
    ],
)
def test_the_unit_of_a_cgroup_file(cgroup, unit):
    assert procfs.parse_unit(cgroup.encode()) == unit


@pytest.fixture
def busy():
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        yield child
        child.kill()


def test_the_load_of_a_real_busy_process(busy):
    before, start = procfs.threads_of(LIVE, busy.pid)[0].run_ns, time.monotonic()
    found = sampling.sample(LIVE, 1.0, time.sleep, time.monotonic)
    mine = next(process for process in found if process.pid == busy.pid)
    (thread,) = mine.threads
    # The process may share its CPU with others. The scheduler counts in nanoseconds how much CPU time it received.
    ran = (thread.run_ns - before) / 1e7 / (time.monotonic() - start)
    assert thread.load == pytest.approx(ran, abs=10)
    assert mine.load == pytest.approx(ran, abs=10)
    # Beside much other work the process gets less than a fifth of a CPU.
    assert mine.load > min(20, ran / 2) > 0
    assert mine.command.startswith(sys.executable)
    assert [process.pid for process in found] == sorted(process.pid for process in found)
    assert thread.affinity.ids == os.sched_getaffinity(busy.pid)


def test_a_process_with_a_command_line_of_megabytes_does_not_swell_the_snapshot():
    words = ["\x01" * 100_000] * 16  # each byte takes six in JSON
    with subprocess.Popen(["/bin/sh", "-c", "read line", *words], stdin=subprocess.PIPE) as long:
        # The kernel lets Popen go on before it has set the arguments of the new program.
        while not Path(f"/proc/{long.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        found = next(
            process for process in sampling.sample(LIVE, 0, time.sleep, time.monotonic) if process.pid == long.pid
        )
    assert found.command.startswith("/bin/sh -c read line \x01")
    assert len(codec.dump(found)) < 7 * procfs.MAX_COMMAND


def test_the_stat_files_of_the_threads_that_are_left(tmp_path):
    process(tmp_path, 10, name=b"CPU 1/KVM", threads=(11, 12))
    (tmp_path / "proc/10/task/11/stat").unlink()
    assert [stat.name for stat in procfs.stats_of(tmp_path, 10)] == ["CPU 1/KVM"] * 2
    with pytest.raises(Gone, match="process 9"):
        procfs.stats_of(tmp_path, 9)


def test_the_threads_of_a_real_process():
    release = threading.Event()
    threads = [threading.Thread(target=release.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        found = procfs.threads_of(LIVE, os.getpid())
    finally:
        release.set()
        for thread in threads:
            thread.join()
    assert {thread.native_id for thread in threads} <= {thread.tid for thread in found}
    assert [thread.tid for thread in found] == sorted(thread.tid for thread in found)
    # Ids wrap around, so the main thread may not have the lowest id.
    first = next(thread for thread in found if thread.tid == os.getpid())
    assert first.started == procfs.started(LIVE, os.getpid())


def test_a_real_process_that_has_ended_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(Gone, match=str(child.pid)):
        procfs.threads_of(LIVE, child.pid)
    with pytest.raises(Gone, match=str(child.pid)):
        procfs.started(LIVE, child.pid)


def test_processes_that_start_and_end_during_a_sample_are_no_error():
    done = threading.Event()

    def churn():
        while not done.is_set():
            children = [subprocess.Popen(["/bin/sleep", "0.01"]) for _ in range(10)]
            for child in children:
                child.kill()
                child.wait()

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        for _ in range(20):
            found = sampling.sample(LIVE, 0.01, time.sleep, time.monotonic)
            mine = next(process for process in found if process.pid == os.getpid())
            assert mine.threads
            assert all(process.threads for process in found)
    finally:
        done.set()
        churner.join()


def test_a_real_name_with_a_newline_and_an_escape():
    name = "a)\n\x1b[31m"
    rename = f"import ctypes, sys\nctypes.CDLL(None).prctl(15, {name.encode()!r})\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", rename, "<b>\n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        found = {process.pid: process for process in sampling.sample(LIVE, 0, time.sleep, time.monotonic)}[child.pid]
        child.stdin.close()
    assert found.name == found.threads[0].name == name
    assert found.command.endswith(" <b>\n")
