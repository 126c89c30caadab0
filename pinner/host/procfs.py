"""Processes and threads, read from /proc (or a captured one): pure readers, and the two samples behind every load.

Source: the kernel's Documentation/filesystems/proc.rst. What ends while it is read is left out. A thread's name is its
``comm``, whatever bytes it holds; undecodable ones come out escaped.

Ten thousand threads are usual on a compute host: paths are strings and files are read by bare system calls here.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pinner.host.files import decode, read
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.process import Hold, Process, Thread

PF_KTHREAD = 0x00200000
PF_NO_SETAFFINITY = 0x04000000
"""Flags of /proc/TID/stat (include/linux/sched.h): a kernel thread; one whose affinity the kernel refuses to change."""

HERTZ = os.sysconf("SC_CLK_TCK")
"""Clock ticks a second."""

_VANISHED = (OSError, ValueError, IndexError, Invalid)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat or /proc/PID/task/TID/stat that matter here.

    ``ticks`` is user and system time in clock ticks; of a process, that of its ended threads too.
    """

    name: str
    flags: int
    ticks: int
    started: int


class Use(NamedTuple):
    """Clock ticks used until a moment of the caller's clock, in seconds, by the one that started then."""

    started: int
    ticks: int
    at: float


def started(root: Path, pid: int) -> int:
    """When a process or thread began, in clock ticks after boot. Raises Gone."""
    try:
        return parse_stat(read(f"{root}/proc/{pid}/stat")).started
    except _VANISHED:
        raise Gone(f"process {pid}") from None


def threads_of(root: Path, pid: int) -> tuple[Thread, ...]:
    """The threads of one process by ascending id, loads not measured. Raises Gone."""
    threads = tuple(Sampler(root).threads(f"{root}/proc/{pid}/task"))
    if not threads:
        raise Gone(f"process {pid}")
    return threads


def sample(
    root: Path, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]
) -> tuple[Process, ...]:
    """Every process by ascending pid, with its threads and their loads over ``seconds`` (0: not measured).

    ``clock`` gives seconds that only grow, and ``sleep`` lets them pass. Holds other than ``per-cpu`` are not set.
    """
    sampler = Sampler(root, clock)
    if seconds > 0:
        sampler.first()
        sleep(seconds)
    return sampler.second()


def parse_stat(data: bytes) -> Stat:
    """Read a stat file; the name ends at the last parenthesis, whatever it holds. Raises ValueError, IndexError."""
    end = data.rindex(b")")
    fields = data[end + 2 :].split(None, 20)
    name = decode(data[data.index(b"(") + 1 : end])
    return Stat(name, int(fields[6]), int(fields[11]) + int(fields[12]), int(fields[19]))


class Sampler:
    """Two looks at every process and thread: the first notes CPU time, the second reads all and knows the load.

    A kernel thread is a process of one thread. A process's own stat counts the threads that ended between the looks.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = f"{root}/proc"
        self._clock = clock
        self._processes: dict[str, Use] = {}
        self._threads: dict[str, Use] = {}
        self._began: float | None = None

    def first(self) -> None:
        """Note what every process and thread has used so far."""
        self._began = self._clock()
        for pid in _numbers(self._proc):
            stat = self._note(self._processes, pid, f"{self._proc}/{pid}/stat")
            if stat is None:
                continue
            if stat.flags & PF_KTHREAD:
                self._threads[pid] = self._processes[pid]
                continue
            task = f"{self._proc}/{pid}/task"
            for tid in _numbers(task):
                self._note(self._threads, tid, f"{task}/{tid}/stat")

    def second(self) -> tuple[Process, ...]:
        """Every process that lives now, by ascending pid."""
        return tuple(process for pid in _numbers(self._proc) if (process := self._process(pid)))

    def threads(self, task: str) -> Iterator[Thread]:
        """The threads below a /proc/PID/task folder, by ascending id."""
        for tid in _numbers(task):
            folder = f"{task}/{tid}"
            try:
                yield self._thread(folder, tid, parse_stat(read(f"{folder}/stat")))
            except _VANISHED:
                continue

    def _note(self, uses: dict[str, Use], id_: str, path: str) -> Stat | None:
        try:
            stat = parse_stat(read(path))
        except _VANISHED:
            return None
        uses[id_] = Use(stat.started, stat.ticks, self._clock())
        return stat

    def _process(self, pid: str) -> Process | None:
        folder = f"{self._proc}/{pid}"
        try:
            stat = parse_stat(read(f"{folder}/stat"))
            kernel = bool(stat.flags & PF_KTHREAD)
            unit = parse_unit(_optional(f"{folder}/cgroup"))
            command = "" if kernel else _command(_optional(f"{folder}/cmdline"))
            load = self._load(self._processes.get(pid), stat)
            threads = (self._thread(folder, pid, stat),) if kernel else tuple(self.threads(f"{folder}/task"))
        except _VANISHED:
            return None
        return Process(int(pid), stat.started, stat.name, command, unit, kernel, load, threads) if threads else None

    def _thread(self, folder: str, tid: str, stat: Stat) -> Thread:
        load = self._load(self._threads.get(tid), stat)
        affinity = _affinity(read(f"{folder}/status"))
        run, delay = _schedstat(f"{folder}/schedstat")
        hold: Hold = "per-cpu" if stat.flags & PF_NO_SETAFFINITY else ""
        return Thread(int(tid), stat.started, stat.name, affinity, load, run, delay, hold)

    def _load(self, before: Use | None, stat: Stat) -> float:
        if self._began is None:
            return 0.0
        if before is None or before.started != stat.started:
            before = Use(stat.started, 0, self._began)
        elapsed = self._clock() - before.at
        return round(max(0, stat.ticks - before.ticks) * 100 / HERTZ / elapsed, 2) if elapsed > 0 else 0.0


@lru_cache(maxsize=4096)
def parse_unit(cgroup: bytes) -> str:
    """The innermost systemd unit of a /proc/PID/cgroup file, else the longest path in it; empty at the root."""
    rows = [row for line in decode(cgroup).splitlines() if len(row := line.split(":", 2)) == 3]
    for _, controllers, path in rows:
        if controllers in ("name=systemd", ""):
            for part in reversed(path.split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return max((path.rstrip("/") for _, _, path in rows), key=lambda path: path.count("/"), default="")


def _command(cmdline: bytes) -> str:
    return decode(cmdline.rstrip(b"\0").replace(b"\0", b" "))


def _affinity(status: bytes) -> CpuSet:
    start = status.index(b"\nCpus_allowed_list:") + 19
    return _cpus(status[start : status.index(b"\n", start)])


@lru_cache(maxsize=4096)
def _cpus(text: bytes) -> CpuSet:
    return CpuSet.parse(decode(text))


def _schedstat(path: str) -> tuple[int | None, int | None]:
    try:
        run, delay, _ = read(path).split(None, 2)
        return int(run), int(delay)
    except (OSError, ValueError):
        return None, None


def _optional(path: str) -> bytes:
    try:
        return read(path)
    except OSError:
        return b""


def _numbers(folder: str) -> list[str]:
    try:
        return sorted(filter(str.isdecimal, os.listdir(folder)), key=int)  # noqa: PTH208 - a Path for each is too slow
    except OSError:
        return []
