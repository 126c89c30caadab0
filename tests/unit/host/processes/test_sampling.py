import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.system.kernel import wait_until_asleep

from pinner.host.kernel import cpu_clocks, files
from pinner.host.processes import sampling
from pinner.host.processes.sampling import Sampler, Scanner
from pinner.model.cpuset import CpuSet

LIVE = Path("/")
TREE = """
import random, sys, threading, time
def work(busy):
    while True:
        end = time.monotonic() + 0.05
        while busy and time.monotonic() < end:
            pass
        time.sleep(0.01 if busy else 3600)
kinds = sys.argv[1]
for kind in kinds[1:]:
    threading.Thread(target=work, args=(kind == "b",), daemon=True).start()
print("ready", flush=True)
work(kinds[0] == "b")
"""
"""A process with a thread for each letter of its argument: b is busy, s sleeps."""

ON_DEMAND = """
import sys, threading, time
def burn():
    end = time.thread_time() + 0.3
    while time.thread_time() < end:
        pass
print("ready", flush=True)
for line in sys.stdin:
    burns = line == "burn\\n"
    thread = threading.Thread(target=burn if burns else time.sleep, args=() if burns else (3600,), daemon=True)
    thread.start()
    if burns:
        thread.join()
    print("done", flush=True)
"""


@contextlib.contextmanager
def running(program, *arguments):
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        try:
            yield child
        finally:
            child.kill()


UNTIL_TOLD = """
import sys, threading
def burn():
    while not told.is_set():
        pass
told = threading.Event()
threads = [threading.Thread(target=burn)]
threads[0].start()
print("ready", flush=True)
sys.stdin.readline()
told.set()
threads[0].join()
print("done", flush=True)
sys.stdin.readline()
"""
"""A process with a busy second thread, which ends when a line is written."""


def tell(child, line):
    child.stdin.write(line + b"\n")
    child.stdin.flush()
    child.stdout.readline()
    wait_until_asleep(child.pid)


@pytest.fixture
def child():
    with running(ON_DEMAND) as child:
        wait_until_asleep(child.pid)
        yield child


@pytest.fixture
def scanner():
    return Scanner(LIVE)


def look(scanner, pid, seconds=0.0, sleep=time.sleep):
    found = scanner.sample(seconds, sleep, time.monotonic)
    return next((process for process in found if process.pid == pid), None)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow("scans of other trees of busy threads")) for n in range(1, 4))]
)
def test_a_scan_that_knows_sleepers_finds_the_same_as_a_full_one(seed, scanner):
    chance = random.Random(seed)
    kinds = ["".join(chance.choices("bs", (1, 9), k=chance.randint(1, 12))) for _ in range(8)] + ["b", "sb", "ssss"]
    with contextlib.ExitStack() as tree:
        children = {tree.enter_context(running(TREE, each)).pid for each in kinds}
        time.sleep(0.1)
        scanner.sample(0.0, time.sleep, time.monotonic)
        full, quick = Sampler(LIVE), Sampler(LIVE, earlier=scanner._known)
        full.first()
        quick.first()
        time.sleep(1)
        found = [{each.pid: each for each in sampler.second() if each.pid in children} for sampler in (full, quick)]
    assert found[0].keys() == found[1].keys() == children
    loads = [{thread.tid: thread.load for each in both.values() for thread in each.threads} for both in found]
    for mine, its in (loads, reversed(loads)):
        # Between the reads of both samplers a thread may run for a moment.
        assert all(its[tid] > 0 for tid, load in mine.items() if load >= 3)
    assert sum(load > 0 for load in loads[1].values()) >= sum(each.count("b") for each in kinds)
    for pid, process in found[0].items():
        other = found[1][pid]
        facts = [(each.pid, each.started, each.name, each.command, each.unit) for each in (process, other)]
        assert facts[0] == facts[1]
        for mine, its in zip(process.threads, other.threads, strict=True):
            assert (mine.key, mine.name, mine.affinity, mine.realtime) == (
                its.key,
                its.name,
                its.affinity,
                its.realtime,
            )
            assert mine.load == pytest.approx(its.load, abs=25)
            assert mine.load or its.load or mine == its


def test_nothing_is_read_of_a_process_that_sleeps(child, scanner, monkeypatch):
    first = look(scanner, child.pid)
    read = []
    opened = files.open_file
    monkeypatch.setattr(files, "open_file", lambda path, *rest: read.append(str(path)) or opened(path, *rest))
    assert look(scanner, child.pid, 0.05) is first
    assert f"{LIVE}/proc/{child.pid}" not in read
    assert f"{LIVE}/proc/{os.getpid()}" in read


def test_a_mask_that_another_program_sets_is_noticed_though_the_thread_sleeps(child, scanner):
    before = look(scanner, child.pid)
    cpu = min(before.threads[0].affinity)
    os.sched_setaffinity(child.pid, {cpu})
    found = look(scanner, child.pid, 0.05)
    assert found.threads[0].affinity.ids == {cpu}
    assert (found.load, found.threads[0].load) == (0.0, 0.0)


@pytest.mark.needs("realtime")
def test_a_policy_that_another_program_sets_is_noticed_though_the_thread_sleeps(child, scanner):
    look(scanner, child.pid)
    os.sched_setscheduler(child.pid, os.SCHED_FIFO, os.sched_param(1))
    assert look(scanner, child.pid).threads[0].realtime == "fifo"


def test_a_thread_that_is_born_is_noticed(child, scanner):
    assert len(look(scanner, child.pid).threads) == 1
    tell(child, b"sleep")
    assert len(look(scanner, child.pid).threads) == 2


def test_the_time_of_a_thread_that_ends_between_the_samples_counts_for_its_process(child, scanner):
    look(scanner, child.pid)
    found = look(scanner, child.pid, 0.5, lambda _: tell(child, b"burn"))
    assert found.load > 1
    assert len(found.threads) == 1
    assert look(scanner, child.pid, 0.05).load == 0.0


def test_a_thread_that_is_left_alone_has_not_the_time_of_those_that_have_ended(scanner):
    with running(UNTIL_TOLD) as child:
        time.sleep(1.5)
        found = look(scanner, child.pid, 0.5, lambda _: tell(child, b"end"))
        assert len(found.threads) == 1
        # The thread burned for two seconds: as a load of these 0.5 s that would be hundreds of per cent.
        assert found.threads[0].load < 100


def test_of_a_busy_process_of_one_thread_few_files_are_read_again(scanner, monkeypatch):
    with running(TREE, "b") as child:
        look(scanner, child.pid)
        folder, read = [], []
        opened, whole = sampling.Folder, files.open_file

        def open_folder(path):
            found = opened(path)
            folder[:] = [found._descriptor] if path == f"{LIVE}/proc/{child.pid}" else []
            return found

        def open_file(path, flags, inside=None):
            if inside in folder:
                read.append(path)
            return whole(path, flags, inside)

        monkeypatch.setattr(sampling, "Folder", open_folder)
        monkeypatch.setattr(files, "open_file", open_file)
        found = look(scanner, child.pid, 0.2)
    assert found.threads[0].load > 1
    assert read[-4:] == ["stat", "cgroup", "cmdline", "schedstat"]
    assert read[:-4] in ([], ["stat"])  # none where it slept from the earlier scan to the first sample


def test_a_busy_thread_that_another_program_moves_is_noticed(scanner):
    with running(TREE, "bb") as child:
        before = look(scanner, child.pid)
        cpu = min(before.threads[1].affinity)
        os.sched_setaffinity(before.threads[1].tid, {cpu})
        found = look(scanner, child.pid, 0.2)
    assert [each.affinity for each in found.threads] == [before.threads[0].affinity, CpuSet.of([cpu])]


def test_the_time_from_before_the_first_sample_does_not_count(child, scanner):
    look(scanner, child.pid)
    tell(child, b"burn")
    assert look(scanner, child.pid, 0.1).load == 0.0


@pytest.mark.needs("choose_pids")
def test_a_reused_id_is_noticed(scanner):
    last = Path("/proc/sys/kernel/ns_last_pid")
    with running(TREE, "s") as former:
        wait_until_asleep(former.pid)
        before = look(scanner, former.pid)
    for _ in range(50):
        last.write_text(str(former.pid - 1))
        with running(TREE, "s") as latter:
            time.sleep(0.05)
            if latter.pid == former.pid:
                found = look(scanner, former.pid, 0.05)
                break
    else:
        pytest.skip("other programs took the id")
    assert found.started > before.started
    assert found is not before


def test_facts_that_are_too_old_are_read_again(child, scanner):
    first = look(scanner, child.pid)
    found = scanner.sample(0.0, time.sleep, lambda: time.monotonic() + sampling.MAX_AGE + 1)
    again = next(process for process in found if process.pid == child.pid)
    assert again == first
    assert again is not first


def test_without_cpu_clocks_everything_is_read_each_time(child, scanner, monkeypatch):
    monkeypatch.setattr(cpu_clocks, "ran_ns", lambda _: None)
    first = look(scanner, child.pid)
    found = look(scanner, child.pid, 0.5, lambda _: tell(child, b"burn"))
    assert found is not first
    assert found.load > 1


def test_a_process_that_has_ended_has_no_cpu_clock(child):
    assert cpu_clocks.ran_ns(child.pid) > 0
    assert cpu_clocks.SettingsReader().read(child.pid) is not None
    child.kill()
    child.wait()
    assert cpu_clocks.ran_ns(child.pid) is None
    assert cpu_clocks.SettingsReader().read(child.pid) is None


@pytest.mark.needs("pid_namespaces")
def test_the_clocks_of_another_pid_namespace_are_not_used(tmp_path):
    assert cpu_clocks.are_of(LIVE)
    assert not cpu_clocks.are_of(tmp_path)
    ask = "from pathlib import Path\nfrom pinner.host.kernel import cpu_clocks\nprint(cpu_clocks.are_of(Path('/')))"
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", ask]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip() == "False"
