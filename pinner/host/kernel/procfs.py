"""Reads the files of processes and threads in /proc, or in a captured one.

Source: the kernel's Documentation/filesystems/proc.rst. Processes and threads that end meanwhile are left out. A
thread's name is its ``comm``, which may contain any bytes; undecodable bytes are escaped.

A compute host often has ten thousand threads. For speed, paths are strings here and files are read by system calls.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel.cpusets import parse_rows
from pinner.host.kernel.files import Folder, decode, numbers, read, read_start
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.processes.process import Immovable, RealTime, Thread

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

_UIDS = re.compile(rb"^Uid:(.*)", re.MULTILINE)

VANISHED = (OSError, ValueError, IndexError, Invalid)
"""What a reader raises where a process or thread has ended."""


class Stat(NamedTuple):
    """The fields of /proc/PID/stat or /proc/PID/task/TID/stat that pinner uses.

    ``ticks`` is user and system time in clock ticks; for a process it includes its ended threads. ``threads`` is the
    number of threads of the process, the first one included even where it has ended.
    """

    name: str
    flags: int
    ticks: int
    threads: int
    started: int
    realtime: RealTime


class ThreadFiles(NamedTuple):
    """A thread, its load not measured, and what was read of it: its stat file, parsed too, and its schedstat file."""

    thread: Thread
    data: bytes
    stat: Stat
    schedstat: bytes


def started(root: Path, pid: int) -> int:
    """The start time of a process or thread, in clock ticks after boot. Raises Gone."""
    try:
        return parse_stat(read(f"{root}/proc/{pid}/stat")).started
    except VANISHED:
        raise Gone(f"process {pid}") from None


def threads_of(root: Path, pid: int) -> tuple[Thread, ...]:
    """The threads of one process by ascending id, without loads. Raises Gone."""
    try:
        with Folder(f"{root}/proc/{pid}") as folder:
            threads = tuple(each.thread for each in _files_in(root, pid, folder))
    except VANISHED:
        threads = ()
    if not threads:
        raise Gone(f"process {pid}")
    return threads


def stats_of(root: Path, pid: int) -> list[Stat]:
    """What the stat files of the process's threads say, by ascending id: a third of the files of ``threads_of``. Raises
    Gone."""
    found = []
    with suppress(*VANISHED), Folder(f"{root}/proc/{pid}") as folder:
        for tid in numbers(f"{root}/proc/{pid}/task"):
            with suppress(*VANISHED):
                found.append(parse_stat(read(f"task/{tid}/stat", folder)))
    if not found:
        raise Gone(f"process {pid}")
    return found


def _files_in(root: Path, pid: int, folder: int) -> Iterator[ThreadFiles]:
    for tid in numbers(f"{root}/proc/{pid}/task"):
        try:
            found = thread_files(folder, f"task/{tid}/", tid)
        except VANISHED:
            continue
        yield found


def parse_stat(data: bytes) -> Stat:
    """Parse a stat file; the name may contain parentheses and ends at the last one. Raises ValueError, IndexError."""
    end = data.rindex(b")")
    fields = data[end + 2 :].split(None, 20)
    name = decode(data[data.index(b"(") + 1 : end])
    # Field 18 is negative for a real-time thread, and for a normal one that inherits its priority from a lock.
    realtime = _REALTIME.get(int(fields[20].split(None, 19)[18]), "") if fields[15].startswith(b"-") else ""
    ticks = int(fields[11]) + int(fields[12])
    return Stat(name, int(fields[6]), ticks, int(fields[17]), int(fields[19]), realtime)


def thread_files(
    folder: int, below: str, tid: str, schedstat: bytes | None = None, data: bytes = b"", same: Thread | None = None
) -> ThreadFiles:
    """Read a thread in the open folder of its process. ``schedstat``, and ``data`` of its stat file, are given where
    they are read already; ``same`` is what an earlier read says of a thread of this id whose affinity is the same now.

    Raises OSError, Busy, ValueError, IndexError, Invalid.
    """
    data = data or read(f"{below}stat", folder)
    stat = parse_stat(data)
    if same and same.started == stat.started:
        affinity = same.affinity
    else:
        affinity = parse_affinity(read(f"{below}status", folder))
    times = optional(f"{below}schedstat", folder) if schedstat is None else schedstat
    run, delay = parse_schedstat(times) or (None, None)
    immovable_reason: Immovable = "per-cpu" if stat.flags & PF_NO_SETAFFINITY else ""
    thread = Thread(int(tid), stat.started, stat.name, affinity, 0.0, run, delay, immovable_reason, stat.realtime)
    return ThreadFiles(thread, data, stat, times)


def users(status: bytes) -> list[int]:
    """The real, effective, saved and file system user id; empty where the file has none (an old capture)."""
    found = _UIDS.search(status)
    return [int(user) for user in found[1].split()] if found else []


def is_of_root(root: Path, pid: int) -> bool:
    """Whether the process works for root; also true on an old capture, which does not tell.

    Any user may give a process any name. A setuid program has root's rights, and does the work of its caller.
    """
    try:
        return set(users(read(f"{root}/proc/{pid}/status"))) <= {0}
    except OSError:
        return True


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


def command(folder: int) -> str:
    """The command line of the process with this open folder, its first part where it is long. Raises Busy."""
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


def parse_schedstat(content: bytes) -> tuple[int, int] | None:
    """The nanoseconds of a thread on a CPU, and waiting for one (Documentation/scheduler/sched-stats.rst); None where a
    kernel without schedstat does not tell."""
    try:
        run, wait, _ = content.split(None, 2)
        return int(run), int(wait)
    except ValueError:
        return None


def optional(path: str, folder: int) -> bytes:
    """The file, empty where it cannot be read. Raises Busy."""
    try:
        return read(path, folder)
    except OSError:
        return b""
