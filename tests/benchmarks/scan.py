"""What a scan costs: two samples of every process and thread, ours, psutil's, and the floor.

Run ``python tests/benchmarks/scan.py [THREADS ...]``. Every way is run in turn, several times, and the medians are
compared. The floor reads the same files as ours by bare system calls, and looks into none. Nothing here waits, so that
CPU time, user's and system's, is the whole cost; unlike the wall's it does not count what others do meanwhile.
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
    """The two looks of a snapshot, without the pause between them."""
    procfs.sample(ROOT, 1.0, sleep=lambda _: None, clock=time.monotonic)


def with_psutil() -> None:
    """The same facts by psutil's means; of every thread it gives times and affinity, but no name and no run delay."""
    seen = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            seen[process.pid] = (process.cpu_times(), process.threads())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            process.name(), process.cmdline(), process.create_time(), process.cpu_times()
            for thread in process.threads():
                with contextlib.suppress(psutil.Error):
                    psutil.Process(thread.id).cpu_affinity()


def floor() -> None:
    """Read what ours reads: stat of every process and thread, then everything."""
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
"""Kernel threads: ours reads fewer files of them, so the floor must, too."""


@contextlib.contextmanager
def threads(total: int) -> Iterator[None]:
    """A machine with ``total`` more threads, in several processes."""
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


def timed(way: Callable[[], None]) -> float:
    """Milliseconds of CPU time that one run takes."""
    began = time.process_time()
    way()
    return (time.process_time() - began) * 1000


def rows(sizes: tuple[int, ...] = SIZES) -> list[dict[str, str]]:
    """One row for each size: medians in milliseconds, and what they are to each other."""
    table = []
    for size in sizes:
        with threads(size):
            runs = [[timed(way) for way in (floor, ours, with_psutil)] for _ in range(REPETITIONS)]
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
