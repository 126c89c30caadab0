"""Processes and threads, read from /proc (or a captured one): pure readers, and the two samples behind every load.

Source: Documentation/filesystems/proc.rst of the kernel. What ends while it is read is left out. A thread's name is
its ``comm`` byte for byte, undecodable bytes escaped.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.process import Hold, Thread

PF_KTHREAD = 0x00200000
PF_NO_SETAFFINITY = 0x04000000
"""Flags of /proc/TID/stat (include/linux/sched.h): a kernel thread; one whose affinity the kernel refuses to change."""

_BUFFER = 16384


class Stat(NamedTuple):
    """The fields of /proc/PID/stat or /proc/PID/task/TID/stat that matter here.

    ``ticks`` is user and system time in clock ticks; of a process, that of its ended threads too.
    """

    name: str
    flags: int
    ticks: int
    started: int


def started(root: Path, pid: int) -> int:
    """When a process or thread began, in clock ticks after boot. Raises Gone."""
    try:
        return parse_stat(_read(f"{root}/proc/{pid}/stat")).started
    except (OSError, ValueError, IndexError):
        raise Gone(f"process {pid}") from None


def threads_of(root: Path, pid: int) -> tuple[Thread, ...]:
    """The threads of one process by ascending id, loads not measured. Raises Gone."""
    task = f"{root}/proc/{pid}/task"
    threads = tuple(thread for tid in _numbers(task) if (thread := _thread(f"{task}/{tid}", int(tid))))
    if not threads:
        raise Gone(f"process {pid}")
    return threads


def parse_stat(data: bytes) -> Stat:
    """Read a stat file; the name ends at the last parenthesis, whatever it holds. Raises ValueError, IndexError."""
    end = data.rindex(b")")
    fields = data[end + 2 :].split(None, 20)
    name = data[data.index(b"(") + 1 : end].decode("utf-8", "backslashreplace")
    return Stat(name, int(fields[6]), int(fields[11]) + int(fields[12]), int(fields[19]))


def _thread(folder: str, tid: int) -> Thread | None:
    try:
        stat = parse_stat(_read(f"{folder}/stat"))
        affinity = _affinity(_read(f"{folder}/status"))
    except (OSError, ValueError, IndexError, Invalid):
        return None
    run, delay = _schedstat(f"{folder}/schedstat")
    hold: Hold = "per-cpu" if stat.flags & PF_NO_SETAFFINITY else ""
    return Thread(tid, stat.started, stat.name, affinity, 0.0, run, delay, hold)


def _affinity(status: bytes) -> CpuSet:
    start = status.index(b"\nCpus_allowed_list:") + 19
    return _cpus(status[start : status.index(b"\n", start)])


@lru_cache(maxsize=4096)
def _cpus(text: bytes) -> CpuSet:
    return CpuSet.parse(text.decode("ascii"))


def _schedstat(path: str) -> tuple[int | None, int | None]:
    try:
        run, delay, *_ = _read(path).split()
        return int(run), int(delay)
    except (OSError, ValueError):
        return None, None


def _numbers(folder: str) -> list[str]:
    try:
        return sorted(filter(str.isdecimal, os.listdir(folder)), key=int)  # noqa: PTH208 - a Path for each costs more than reading it
    except OSError:
        return []


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(file, _BUFFER)
        while len(data) % _BUFFER == 0 and (more := os.read(file, _BUFFER)):
            data += more
        return data
    finally:
        os.close(file)
