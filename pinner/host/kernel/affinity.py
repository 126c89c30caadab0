"""A thread's affinity as the kernel reports it, and pinner's only call of sched_setaffinity. An open folder /proc/TID
stays that of the thread even when the kernel reuses the id."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pinner.host.kernel import cgroups, files, procfs
from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.kernel.partitions import ONLINE
from pinner.model.change import ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, NotPermitted

_ROOT = Path("/")


def mask(tid: int) -> ThreadMask:
    """Raises Gone."""
    with _opened(tid) as folder:
        return _mask(folder, "", tid, procfs.parse_stat(_read(folder, "stat", tid)))


def masks(pid: int, wanted: Callable[[str], bool] = lambda _: True) -> tuple[ThreadMask, ...]:
    """By ascending thread id. Raises Gone where there are none. Threads with PF_NO_SETAFFINITY are left out; before
    Linux 6.3 io_uring workers have it."""
    thread_masks = []
    with _opened(pid) as folder:
        for number in files.numbers(f"/proc/{pid}/task"):
            tid = int(number)
            with suppress(Gone):
                stat = procfs.parse_stat(_read(folder, f"task/{tid}/stat", tid))
                if wanted(stat.name) and not stat.flags & procfs.PF_NO_SETAFFINITY:
                    thread_masks.append(_mask(folder, f"task/{tid}/", tid, stat))
    if not thread_masks:
        raise Gone(f"process {pid}")
    return tuple(thread_masks)


def set_affinity(thread: ThreadMask, read: CpuSet | None = None) -> bool:
    """Raises Gone where the thread ended (its id may be another's), NotPermitted, and ApplyFailed where the kernel
    refuses. Inside a cpuset, the kernel grants fewer CPUs without an error: then the former mask is set again, unless
    another program sets one at that moment, and ApplyFailed is raised. Returns False where the mask is no longer
    ``read``: it stays then."""
    with _opened(thread.tid) as folder:
        if procfs.parse_stat(_read(folder, "stat", thread.tid)).started != thread.started:
            raise Gone(f"thread {thread.tid}")
        former = procfs.parse_affinity(_read(folder, "status", thread.tid))
        if former == thread.cpus:
            return True
        if read not in (None, former):
            return False
        _set(thread, thread.cpus)
        granted = procfs.parse_affinity(_read(folder, "status", thread.tid))
        # A CPU that was not requested is no answer of the kernel: a program has set the mask again since.
        if granted != thread.cpus and granted <= thread.cpus:
            _set(thread, former)
            raise _refused(thread, granted)
    return True


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
        raise NotPermitted(f"thread {thread.tid}", "setting its affinity needs CAP_SYS_NICE") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _refused(thread, CpuSet()) from None
        # EBUSY: a thread of SCHED_DEADLINE needs every CPU that the kernel balances together.
        why = ": a thread of SCHED_DEADLINE keeps its CPUs" if error.errno == errno.EBUSY else ""
        raise ApplyFailed(f"thread {thread.tid}", f"the kernel refuses CPUs {cpus}: {error.strerror}{why}") from None


def _refused(thread: ThreadMask, granted: CpuSet) -> ApplyFailed:
    cpus = f"CPUs {granted}" if granted else "none of them"
    why = f"pinner requested CPUs {thread.cpus}, the kernel grants {cpus}: {_refusal_cause(thread)}"
    return ApplyFailed(f"thread {thread.tid}", why, asked=str(thread.cpus), granted=str(granted))


def _refusal_cause(thread: ThreadMask) -> str:
    online = files.cpu_list(_ROOT / ONLINE) or thread.cpus
    try:
        stat = procfs.parse_stat(files.read(f"/proc/{thread.tid}/stat"))
        limits = cgroups.limits(cpuset_mount(_ROOT), cgroups.path_of(_ROOT, thread.tid), online)
    except OSError:
        return "the thread has ended"
    if stat.flags & procfs.PF_NO_SETAFFINITY:
        return "the thread is a kernel thread that is bound to its CPU"
    if offline := thread.cpus - online:
        return f"CPUs {offline} are offline or absent"
    named = [f"{limit} allows CPUs {limit.cpus}" for limit in limits if not thread.cpus <= limit.cpus]
    return named[0] if named else "no cgroup leaves out one of them now"
