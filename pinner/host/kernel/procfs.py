"""Reads the files of processes and threads in /proc (filesystems/proc.rst), or in a captured one. Those that end
meanwhile are left out. For speed, paths are strings."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel.cgroups import parse_rows
from pinner.host.kernel.files import Folder, decode, numbers, read, read_start, text
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.machine.process import Immovable, RealTime, Thread, cgroup_with_parents, host_unit

PF_KTHREAD = 0x00200000
PF_NO_SETAFFINITY = 0x04000000
"""A flag of /proc/TID/stat (include/linux/sched.h)."""

HERTZ = os.sysconf("SC_CLK_TCK")

MAX_COMMAND = 4096
"""Bytes. A user may give each process 6 MiB, too large for a snapshot."""

_REALTIME: dict[int, RealTime] = {1: "fifo", 2: "rr", 6: "deadline"}

CAP_SYS_NICE = 1 << 23
"""include/uapi/linux/capability.h: may change any process's affinity."""

_UIDS = re.compile(rb"^Uid:(.*)", re.MULTILINE)
_CAPABILITIES = re.compile(rb"^(Cap\w+):\s*([0-9a-f]+)", re.MULTILINE)

VANISHED = (OSError, ValueError, IndexError, Invalid)
"""What a reader raises where a process or thread has ended."""


class Stat(NamedTuple):
    """``ticks``: user and system time, also of ended threads. ``threads`` counts the first one even after its end."""

    name: str
    flags: int
    ticks: int
    threads: int
    started: int
    realtime: RealTime


class CpuTicks(NamedTuple):
    """The times of a CPU in clock ticks, as in /proc/stat. Guests' time is part of user time."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int


class Stall(NamedTuple):
    """``percent`` is of the last ten seconds, ``total_us`` are microseconds since the boot (accounting/psi.rst)."""

    percent: float
    total_us: int


class ThreadFiles(NamedTuple):
    thread: Thread
    data: bytes
    stat: Stat
    schedstat: bytes


def started(root: Path, pid: int) -> int:
    """Clock ticks after boot. Raises Gone."""
    try:
        return parse_stat(read(f"{root}/proc/{pid}/stat")).started
    except VANISHED:
        raise Gone(f"process {pid}") from None


def threads_of(root: Path, pid: int) -> tuple[Thread, ...]:
    """Raises Gone."""
    try:
        with Folder(f"{root}/proc/{pid}") as folder:
            threads = tuple(files.thread for files in _files_in(root, pid, folder))
    except VANISHED:
        threads = ()
    if not threads:
        raise Gone(f"process {pid}")
    return threads


def stats_of(root: Path, pid: int) -> list[Stat]:
    """It reads a third of the files of ``threads_of``. Raises Gone."""
    stats = []
    with suppress(*VANISHED), Folder(f"{root}/proc/{pid}") as folder:
        for tid in numbers(f"{root}/proc/{pid}/task"):
            with suppress(*VANISHED):
                stats.append(parse_stat(read(f"task/{tid}/stat", folder)))
    if not stats:
        raise Gone(f"process {pid}")
    return stats


def _files_in(root: Path, pid: int, folder: int) -> Iterator[ThreadFiles]:
    for tid in numbers(f"{root}/proc/{pid}/task"):
        try:
            files = thread_files(folder, f"task/{tid}/", tid)
        except VANISHED:
            continue
        yield files


def parse_stat(data: bytes) -> Stat:
    """Raises ValueError, IndexError."""
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
    """``schedstat`` and ``data`` (of the stat file) are given where they were read already; ``same``: an earlier read.
    Raises OSError, Busy, ValueError, IndexError, Invalid."""
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
    """Real, effective, saved and file system id; none on an old capture."""
    match = _UIDS.search(status)
    return [int(user) for user in match[1].split()] if match else []


def capabilities(status: bytes, of: bytes) -> int:
    """The bits of a set (CapPrm, CapEff); none on an old capture."""
    return int(dict(_CAPABILITIES.findall(status)).get(of, b"0"), 16)


def is_of_root(root: Path, pid: int) -> bool:
    """A setuid program works for its caller. True on an old capture."""
    try:
        return set(users(read(f"{root}/proc/{pid}/status"))) <= {0}
    except OSError:
        return True


@lru_cache(maxsize=4096)
def parse_unit(cgroup: bytes) -> str:
    """The innermost unit: the host's (host_unit) by name, others by path; else the longest path; empty for the root."""
    rows = parse_rows(cgroup)
    for controllers, path in rows:
        if controllers in ("name=systemd", ""):
            for each in cgroup_with_parents(path):
                if each.endswith((".service", ".scope")):
                    return host_unit(each) or each
    return max((path.rstrip("/") for _, path in rows), key=lambda path: path.count("/"), default="")


def command(folder: int) -> str:
    """The first MAX_COMMAND bytes. Raises Busy."""
    try:
        cmdline = read_start("cmdline", MAX_COMMAND, folder)
    except OSError:
        return ""
    return decode(cmdline.rstrip(b"\0").replace(b"\0", b" "))


def parse_affinity(status: bytes) -> CpuSet:
    """Raises ValueError, Invalid."""
    start = status.index(b"\nCpus_allowed_list:") + 19
    return _cpus(status[start : status.index(b"\n", start)])


@lru_cache(maxsize=4096)
def _cpus(text: bytes) -> CpuSet:
    return CpuSet.parse(decode(text))


def parse_schedstat(content: bytes) -> tuple[int, int] | None:
    """Nanoseconds on a CPU, and nanoseconds of waiting for one (scheduler/sched-stats.rst)."""
    try:
        run, wait, _ = content.split(None, 2)
        return int(run), int(wait)
    except ValueError:
        return None


def optional(path: str, folder: int) -> bytes:
    try:
        return read(path, folder)
    except OSError:
        return b""


def names_of_all(root: Path) -> Iterator[tuple[int, str]]:
    for pid in map(int, numbers(f"{root}/proc")):
        yield pid, name_of(root, pid)


def name_of(root: Path, pid: int) -> str:
    """Empty where it has ended."""
    try:
        return decode(read(f"{root}/proc/{pid}/comm")).rstrip("\n")
    except OSError:
        return ""


def cpu_ticks(root: Path) -> dict[int, CpuTicks]:
    ticks = {}
    for line in (text(root / "proc/stat") or "").splitlines():
        name, *times = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks[int(name[3:])] = CpuTicks(*map(int, times[:8]))
    return ticks


def stalls(path: Path) -> dict[str, Stall]:
    rows = {}
    for line in (text(path) or "").splitlines():
        kind, *words = line.split()
        values = dict(word.partition("=")[::2] for word in words)
        with suppress(KeyError, ValueError):
            rows[kind] = Stall(float(values["avg10"]), int(values["total"]))
    return rows
