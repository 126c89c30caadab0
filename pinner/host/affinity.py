"""A thread's affinity: the kernel's word on it, and the sole sched_setaffinity.

Source: sched_setaffinity(2); Cpus_allowed_list of /proc/TID/status. A thread is named by id and start time, and its
open folder /proc/TID stays that thread's even when the id is given to another, as a pidfd does for a process.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pinner.host import cpusets, files, procfs
from pinner.model.change import ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, NotPermitted


def mask(tid: int) -> ThreadMask:
    """The thread's start time and mask. Raises Gone."""
    with _opened(tid) as folder:
        return _mask(folder, "", tid, procfs.parse_stat(_read(folder, "stat", tid)))


def masks(pid: int, wanted: Callable[[str], bool] = lambda _: True) -> tuple[ThreadMask, ...]:
    """Those of a process's threads whose name is ``wanted``, by ascending id. Raises Gone where there are none.

    Threads that nobody may move are left out: before Linux 6.3, io_uring's workers in a process of anybody's.
    """
    found = []
    with _opened(pid) as folder:
        for number in files.numbers(f"/proc/{pid}/task"):
            tid = int(number)
            with suppress(Gone):
                stat = procfs.parse_stat(_read(folder, f"task/{tid}/stat", tid))
                if wanted(stat.name) and not stat.flags & procfs.PF_NO_SETAFFINITY:
                    found.append(_mask(folder, f"task/{tid}/", tid, stat))
    if not found:
        raise Gone(f"process {pid}")
    return tuple(found)


def set_affinity(thread: ThreadMask) -> None:
    """Give the thread the mask ``thread.cpus``, exactly, for up to 8,192 CPUs.

    Raises Gone where the thread ended (its id may be another's by now), NotPermitted, and ApplyFailed where the kernel
    refuses, or grants less because a cpuset confines the thread (it does so without an error): then the thread has its
    former mask again.
    """
    with _opened(thread.tid) as folder:
        if procfs.parse_stat(_read(folder, "stat", thread.tid)).started != thread.started:
            raise Gone(f"thread {thread.tid}")
        former = procfs.parse_affinity(_read(folder, "status", thread.tid))
        if former == thread.cpus:
            return
        _set(thread, thread.cpus)
        granted = procfs.parse_affinity(_read(folder, "status", thread.tid))
        if granted != thread.cpus:
            _set(thread, former)
            raise _refused(thread, granted)


def _opened(tid: int) -> files.Folder:
    try:
        return files.Folder(f"/proc/{tid}")
    except OSError:
        raise Gone(f"thread {tid}") from None


def _mask(folder: int, below: str, tid: int, stat: procfs.Stat) -> ThreadMask:
    return ThreadMask(tid, stat.started, procfs.parse_affinity(_read(folder, f"{below}status", tid)))


def _read(folder: int, name: str, tid: int) -> bytes:
    try:
        return files.read(name, folder)
    except OSError:
        raise Gone(f"thread {tid}") from None


def _set(thread: ThreadMask, cpus: CpuSet) -> None:
    try:
        os.sched_setaffinity(thread.tid, cpus)
    except ProcessLookupError:
        raise Gone(f"thread {thread.tid}") from None
    except PermissionError:
        raise NotPermitted(f"thread {thread.tid}", "setting its affinity needs root or CAP_SYS_NICE") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise _refused(thread, CpuSet()) from None


def _refused(thread: ThreadMask, granted: CpuSet) -> ApplyFailed:
    why = f"asked for CPUs {thread.cpus}, the kernel grants {granted or 'none of them'}: {_confined(thread.tid)}"
    return ApplyFailed(f"thread {thread.tid}", why, asked=str(thread.cpus), granted=str(granted))


def _confined(tid: int) -> str:
    """What keeps a thread from CPUs: its cpuset, or the kernel itself."""
    try:
        stat = procfs.parse_stat(files.read(f"/proc/{tid}/stat"))
        cpuset = cpusets.path_of(Path("/"), tid)
    except OSError:
        return "it has ended"
    if stat.flags & procfs.PF_NO_SETAFFINITY:
        return "it is a kernel thread that belongs to its CPU"
    return f"its cpuset {cpuset} confines it, or a CPU is offline or absent"
