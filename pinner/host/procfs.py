"""Reads processes and threads from /proc (or a captured one), and measures their loads between two samples.

Source: the kernel's Documentation/filesystems/proc.rst. Processes and threads that end meanwhile are left out. A
thread's name is its ``comm``, which may contain any bytes; undecodable bytes are escaped.

A compute host often has ten thousand threads. For speed, paths are strings here and files are read by system calls.
"""

import os
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pinner.host.cpusets import parse_rows
from pinner.host.files import Folder, decode, numbers, read, read_start
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.process import Immovable, Process, RealTime, Thread

PF_KTHREAD = 0x00200000
PF_NO_SETAFFINITY = 0x04000000
"""Flags of /proc/TID/stat (include/linux/sched.h): a kernel thread; a thread whose affinity cannot be changed."""

HERTZ = os.sysconf("SC_CLK_TCK")
"""Clock ticks a second."""

MAX_COMMAND = 4096
"""Bytes of a command line in a snapshot. A user may give each process one of 6 MiB, and a few of them would make the
snapshot too large for its readers."""

_REALTIME: dict[int, RealTime] = {1: "fifo", 2: "rr", 6: "deadline"}
"""The real-time scheduling policies by number (include/uapi/linux/sched.h)."""

_VANISHED = (OSError, ValueError, IndexError, Invalid)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat or /proc/PID/task/TID/stat that pinner uses.

    ``ticks`` is user and system time in clock ticks; for a process it includes its ended threads.
    """

    name: str
    flags: int
    ticks: int
    started: int
    realtime: RealTime


class StatSample(NamedTuple):
    """The content of a stat file, and the time of the read in seconds of the caller's clock."""

    stat: bytes
    at: float


def started(root: Path, pid: int) -> int:
    """The start time of a process or thread, in clock ticks after boot. Raises Gone."""
    try:
        return parse_stat(read(f"{root}/proc/{pid}/stat")).started
    except _VANISHED:
        raise Gone(f"process {pid}") from None


def threads_of(root: Path, pid: int) -> tuple[Thread, ...]:
    """The threads of one process by ascending id, without loads. Raises Gone."""
    threads = Sampler(root).threads(pid)
    if not threads:
        raise Gone(f"process {pid}")
    return threads


def sample(
    root: Path, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]
) -> tuple[Process, ...]:
    """Every process by ascending pid, with its threads and their loads over ``seconds`` (0: not measured).

    ``clock`` returns monotonic seconds. No ``immovable_reason`` other than ``per-cpu`` is set.
    """
    sampler = Sampler(root, clock)
    if seconds > 0:
        sampler.first()
        sleep(seconds)
    return sampler.second()


def parse_stat(data: bytes) -> Stat:
    """Parse a stat file; the name may contain parentheses and ends at the last one. Raises ValueError, IndexError."""
    end = data.rindex(b")")
    fields = data[end + 2 :].split(None, 20)
    name = decode(data[data.index(b"(") + 1 : end])
    # Field 18 is negative for a real-time thread, and for a normal one that inherits its priority from a lock.
    realtime = _REALTIME.get(int(fields[20].split(None, 19)[18]), "") if fields[15].startswith(b"-") else ""
    return Stat(name, int(fields[6]), int(fields[11]) + int(fields[12]), int(fields[19]), realtime)


class Sampler:
    """Takes two samples of every process and thread: the first reads CPU times, the second all facts and the loads.

    A kernel thread is a process of one thread. A process's stat includes threads that ended between the samples.
    All files of a process are opened relative to its open folder, so that a new process of the same id is not mixed in.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = f"{root}/proc"
        self._clock = clock
        self._processes: dict[str, StatSample] = {}
        self._threads: dict[str, StatSample] = {}
        self._first_at: float | None = None

    def first(self) -> None:
        """Take the first sample: the CPU time of every process and thread so far."""
        self._first_at = self._clock()
        for pid in numbers(self._proc):
            try:
                with Folder(f"{self._proc}/{pid}") as folder:
                    sample_ = self._processes[pid] = StatSample(read("stat", folder), self._clock())
                    if parse_stat(sample_.stat).flags & PF_KTHREAD:
                        self._threads[pid] = sample_
                    else:
                        self._sample_threads(folder, pid)
            except _VANISHED:
                continue

    def second(self) -> tuple[Process, ...]:
        """Take the second sample: every process by ascending pid."""
        return tuple(process for pid in numbers(self._proc) if (process := self._process(pid)))

    def movable(self, *, kernel: bool = False) -> tuple[Thread, ...]:
        """Every thread of the machine except per-CPU kernel threads, by ascending id. ``kernel``: only kernel ones."""
        processes = (process for process in self.second() if process.kernel or not kernel)
        threads = (thread for process in processes for thread in process.threads)
        found = (thread for thread in threads if thread.immovable_reason != "per-cpu")
        return tuple(sorted(found, key=lambda thread: thread.tid))

    def threads(self, pid: int) -> tuple[Thread, ...]:
        """The threads of a process by ascending id, none where it has ended."""
        try:
            with Folder(f"{self._proc}/{pid}") as folder:
                return self._threads_in(folder, str(pid))
        except _VANISHED:
            return ()

    def _sample_threads(self, folder: int, pid: str) -> None:
        for tid in numbers(f"{self._proc}/{pid}/task"):
            try:
                self._threads[tid] = StatSample(read(f"task/{tid}/stat", folder), self._clock())
            except OSError:
                continue

    def _process(self, pid: str) -> Process | None:
        try:
            with Folder(f"{self._proc}/{pid}") as folder:
                data = read("stat", folder)
                stat = parse_stat(data)
                load = self._load(self._processes.get(pid), data, stat)
                kernel = bool(stat.flags & PF_KTHREAD)
                unit = parse_unit(_optional("cgroup", folder))
                command = "" if kernel else _command(folder)
                threads = (self._thread(folder, "", pid),) if kernel else self._threads_in(folder, pid)
        except _VANISHED:
            return None
        return Process(int(pid), stat.started, stat.name, command, unit, kernel, load, threads) if threads else None

    def _threads_in(self, folder: int, pid: str) -> tuple[Thread, ...]:
        threads = []
        for tid in numbers(f"{self._proc}/{pid}/task"):
            try:
                threads.append(self._thread(folder, f"task/{tid}/", tid))
            except _VANISHED:
                continue
        return tuple(threads)

    def _thread(self, folder: int, below: str, tid: str) -> Thread:
        data = read(f"{below}stat", folder)
        stat = parse_stat(data)
        load = self._load(self._threads.get(tid), data, stat)
        affinity = parse_affinity(read(f"{below}status", folder))
        run, delay = _schedstat(_optional(f"{below}schedstat", folder))
        immovable_reason: Immovable = "per-cpu" if stat.flags & PF_NO_SETAFFINITY else ""
        return Thread(int(tid), stat.started, stat.name, affinity, load, run, delay, immovable_reason, stat.realtime)

    def _load(self, before: StatSample | None, data: bytes, now: Stat) -> float:
        # Most threads sleep between the samples, and their stat files do not change at all.
        if self._first_at is None or (before and before.stat == data):
            return 0.0
        ticks, since = now.ticks, self._first_at
        if before and (then := parse_stat(before.stat)).started == now.started:
            ticks, since = now.ticks - then.ticks, before.at
        elapsed = self._clock() - since
        return round(max(0, ticks) * 100 / HERTZ / elapsed, 2) if elapsed > 0 else 0.0


@lru_cache(maxsize=4096)
def parse_unit(cgroup: bytes) -> str:
    """The innermost systemd unit in a /proc/PID/cgroup file, else the longest path in it; empty for the root cgroup."""
    found = parse_rows(cgroup)
    for controllers, path in found:
        if controllers in ("name=systemd", ""):
            for part in reversed(path.split("/")):
                if part.endswith((".service", ".scope")):
                    return part
    return max((path.rstrip("/") for _, path in found), key=lambda path: path.count("/"), default="")


def _command(folder: int) -> str:
    try:
        cmdline = read_start("cmdline", MAX_COMMAND, folder)
    except OSError:
        return ""
    return decode(cmdline.rstrip(b"\0").replace(b"\0", b" "))


def parse_affinity(status: bytes) -> CpuSet:
    """A thread's affinity: Cpus_allowed_list of its status file. Raises ValueError, Invalid."""
    start = status.index(b"\nCpus_allowed_list:") + 19
    return _cpus(status[start : status.index(b"\n", start)])


@lru_cache(maxsize=4096)
def _cpus(text: bytes) -> CpuSet:
    return CpuSet.parse(decode(text))


def _schedstat(content: bytes) -> tuple[int | None, int | None]:
    try:
        run, delay, _ = content.split(None, 2)
        return int(run), int(delay)
    except ValueError:
        return None, None


def _optional(path: str, folder: int) -> bytes:
    try:
        return read(path, folder)
    except OSError:
        return b""
