"""A scan of the host: two samples of every process and thread, by pinner, by psutil, and the floor.

Run ``python tests/benchmarks/live/scan.py [THREADS ...]``. All run in turn, several times, and the medians are
compared. No scan waits between its samples, so its user and system time is its whole cost; unlike wall time, CPU time
does not include the work of other processes.

The first table is a first scan, which reads everything. The floor reads the same files as pinner by bare system calls,
without parsing them. The second is a scan after the first, while a part of the processes runs all the time. There the
busy processes wake for a moment between two scans, so that they take no CPU from the scans.
"""

import contextlib
import ctypes
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from pinner.host.processes.sampling import Scanner

SIZES = (200, 2_000, 10_000)
REPETITIONS = 15
PROCESSES = 20
ROOT = Path("/")
_libc = ctypes.CDLL(None)

SHAPES = ((10_000, 1), (100, 100))
"""Processes, and threads of each, in the second table."""

BUSY = (0.0, 0.01, 0.1, 1.0)
"""The part of the threads that runs between two scans."""

AGAIN = 5

SLEEPER = """
import sys, threading, time
threading.stack_size(65536)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""

FORKER = """
import os, signal, sys, threading
threading.stack_size(65536)
processes, each = map(int, sys.argv[1:])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
def wait():
    while True:
        signal.sigwait({signal.SIGUSR1})
children = []
for _ in range(processes):
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for _ in range(each - 1):
            threading.Thread(target=wait, daemon=True).start()
        wait()
    children.append(child)
print(*children, flush=True)
sys.stdin.read()
for child in children:
    os.kill(child, signal.SIGKILL)
"""
"""Starts processes whose threads run for a moment at SIGUSR1. It forks, because 10,000 interpreters take minutes."""


Pause = Callable[[], None]
"""What happens between the two samples."""


def ours(pause: Pause = lambda: None, scanner: Scanner | None = None) -> None:
    """The two samples of a snapshot."""
    (scanner or Scanner(ROOT)).sample(1.0, lambda _: pause(), time.monotonic)


def with_psutil(pause: Pause = lambda: None) -> None:
    """The same facts from psutil, which gives the times and affinity of a thread, but not its name and run delay."""
    times = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times[process.pid] = (process.cpu_times(), process.threads())
    pause()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            process.name(), process.cmdline(), process.create_time(), process.cpu_times()
            for thread in process.threads():
                with contextlib.suppress(psutil.Error):
                    psutil.Process(thread.id).cpu_affinity()


def floor(pause: Pause = lambda: None) -> None:
    """Read the same files as pinner: stat of every process and thread, then all files."""
    _read_all(("stat",), ("stat",))
    pause()
    _read_all(("stat", "cgroup", "cmdline"), ("stat", "status", "schedstat"))


def _read_all(of_process: tuple[str, ...], of_thread: tuple[str, ...]) -> None:
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - the floor makes no Path
        with contextlib.suppress(OSError):
            for name in of_process:
                _read(f"/proc/{pid}/{name}")
            if pid in _kernel:
                for name in of_thread[1:]:
                    _read(f"/proc/{pid}/{name}")
                continue
            for tid in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                for name in of_thread:
                    _read(f"/proc/{pid}/task/{tid}/{name}")


def _read(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.read(file, 16384)
    finally:
        os.close(file)


_kernel = {str(process.pid) for process in psutil.process_iter() if process.ppid() == 2 or process.pid == 2}
"""Kernel threads: pinner reads fewer files of them, so the floor must do so, too."""


@contextlib.contextmanager
def threads(total: int) -> Iterator[None]:
    """Start ``total`` threads in several processes."""
    each = total // PROCESSES
    running = [
        subprocess.Popen([sys.executable, "-c", SLEEPER, str(each)], stdout=subprocess.PIPE) for _ in range(PROCESSES)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.communicate()


@contextlib.contextmanager
def family(processes: int, each: int) -> Iterator[list[int]]:
    """Start processes of ``each`` threads; their ids."""
    command = [sys.executable, "-c", FORKER, str(processes), str(each)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        found = list(map(int, parent.stdout.readline().split()))
        while sum(len(tasks(pid)) for pid in found) < processes * each:
            time.sleep(0.1)
        yield found


def tasks(pid: int) -> list[int]:
    """The thread ids of a process."""
    return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - as everywhere here


def wake(threads: list[tuple[int, int]]) -> None:
    """Let these threads, each with its process id, run for a moment."""
    for pid, tid in threads:
        _libc.tgkill(pid, tid, signal.SIGUSR1)
    time.sleep(0.3)


def timed(method: Callable[[Pause], None], pause: Pause = lambda: None) -> tuple[float, float]:
    """The milliseconds of CPU time and of wall time of one run, without those of the pause in it."""
    clocks = (time.process_time, time.perf_counter)
    paused = [0.0, 0.0]

    def pausing() -> None:
        before = [clock() for clock in clocks]
        pause()
        paused[:] = [clock() - was for clock, was in zip(clocks, before, strict=True)]

    began = [clock() for clock in clocks]
    method(pausing)
    cpu, wall = (clock() - was - rest for clock, was, rest in zip(clocks, began, paused, strict=True))
    return cpu * 1000, wall * 1000


def rows(sizes: tuple[int, ...] = SIZES) -> list[dict[str, str]]:
    """One row for each size of a first scan, and one for each shape and busy part of a later one."""
    return [_first(size) for size in sizes] + [row for shape in SHAPES for row in _later(*shape)]


def _first(size: int) -> dict[str, str]:
    with threads(size):
        runs = [[timed(method)[0] for method in (floor, ours, with_psutil)] for _ in range(REPETITIONS)]
    least, mine, psutils = (statistics.median(column) for column in zip(*runs, strict=True))
    return {
        "what": f"scan, {size:,} threads",
        "ours": f"{mine:.1f} ms",
        "floor": f"{least:.1f} ms",
        "ours / floor": f"{mine / least:.2f}",
        "psutil": f"{psutils:.1f} ms",
        "psutil / ours": f"{psutils / mine:.2f}",
    }


def _later(processes: int, each: int) -> Iterator[dict[str, str]]:
    with family(processes, each) as pids:
        everyone = [(pid, tid) for pid in pids for tid in tasks(pid)]
        parts = {f"{part:.0%} busy": everyone[: round(part * len(everyone))] for part in BUSY}
        if each > 1:
            parts["one thread of each process busy"] = everyone[::each]
        for name, woken in parts.items():
            scanner = Scanner(ROOT)
            ours(scanner=scanner)
            runs = [_both(scanner, woken) for _ in range(AGAIN)]
            mine, wall, psutils, its_wall = (statistics.median(column) for column in zip(*runs, strict=True))
            yield {
                "what": f"scan after the first, {processes:,} processes of {each}, {name}",
                "ours": f"{mine:.1f} ms (wall {wall:.1f})",
                "psutil": f"{psutils:.1f} ms (wall {its_wall:.1f})",
                "psutil / ours": f"{psutils / mine:.1f}",
            }


def _both(scanner: Scanner, woken: list[tuple[int, int]]) -> tuple[float, float, float, float]:
    mine = timed(lambda pause: ours(pause, scanner), lambda: wake(woken))
    return *mine, *timed(with_psutil, lambda: wake(woken))


if __name__ == "__main__":
    for row in rows(tuple(int(size) for size in sys.argv[1:]) or SIZES):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
