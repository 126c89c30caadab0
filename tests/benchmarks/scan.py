"""The CPU time of a scan: two samples of every process and thread, by pinner, by psutil, and the floor.

Run ``python tests/benchmarks/scan.py [THREADS ...]``. All three run in turn, several times, and the medians are
compared. The floor reads the same files as pinner by bare system calls, without parsing them. No scan waits, so its
user and system time is its whole cost; unlike wall time, CPU time does not include the work of other processes.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from pinner.host import procfs

SIZES = (200, 2_000, 10_000)
REPETITIONS = 15
PROCESSES = 20
ROOT = Path("/")

SLEEPER = """
import sys, threading, time
threading.stack_size(65536)
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""


def ours() -> None:
    """The two samples of a snapshot, without the pause between them."""
    procfs.sample(ROOT, 1.0, sleep=lambda _: None, clock=time.monotonic)


def with_psutil() -> None:
    """The same facts from psutil, which gives the times and affinity of a thread, but not its name and run delay."""
    times = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            times[process.pid] = (process.cpu_times(), process.threads())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            process.name(), process.cmdline(), process.create_time(), process.cpu_times()
            for thread in process.threads():
                with contextlib.suppress(psutil.Error):
                    psutil.Process(thread.id).cpu_affinity()


def floor() -> None:
    """Read the same files as pinner: stat of every process and thread, then all files."""
    _read_all(("stat",), ("stat",))
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


def timed(method: Callable[[], None]) -> float:
    """The milliseconds of CPU time of one run."""
    began = time.process_time()
    method()
    return (time.process_time() - began) * 1000


def rows(sizes: tuple[int, ...] = SIZES) -> list[dict[str, str]]:
    """One row for each size: medians in milliseconds and their ratios."""
    table = []
    for size in sizes:
        with threads(size):
            runs = [[timed(method) for method in (floor, ours, with_psutil)] for _ in range(REPETITIONS)]
        least, mine, psutils = (statistics.median(column) for column in zip(*runs, strict=True))
        table.append(
            {
                "what": f"scan, {size:,} threads",
                "ours": f"{mine:.1f} ms",
                "floor": f"{least:.1f} ms",
                "ours / floor": f"{mine / least:.2f}",
                "psutil": f"{psutils:.1f} ms",
                "psutil / ours": f"{psutils / mine:.2f}",
            }
        )
    return table


if __name__ == "__main__":
    for row in rows(tuple(int(size) for size in sys.argv[1:]) or SIZES):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
