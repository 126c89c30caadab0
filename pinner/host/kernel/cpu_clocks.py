"""What the kernel says of a process by one system call: how long it ran, and where and how its threads may run.

A file of /proc costs three system calls, and the kernel must write its text. The CPU clock of a process
(clock_getcpuclockid(3)) is one call. While it stands still, no thread of the process ran, so none has begun or ended.
Linux gives the clock of a single thread only to the thread's own process (pid_for_clock in
kernel/time/posix-cpu-timers.c), so the threads of a process that ran are read from their files.
"""

import ctypes
import os
import threading
import time
from pathlib import Path

from pinner.host.kernel.files import read
from pinner.model.cpuset import MAX_CPUS

_SCHED = 2
"""The kind of CPU clock that counts nanoseconds (CPUCLOCK_SCHED, include/linux/posix-timers_types.h)."""

Settings = tuple[bytes, int]
"""A thread's affinity as bits, and its scheduling policy. Other programs may change both
while the thread sleeps."""

_libc = ctypes.CDLL(None)
_get_affinity = _libc.sched_getaffinity
_get_affinity.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)


def ran_ns(pid: int) -> int | None:
    """Nanoseconds of CPU time of a process, its ended threads included; None where the kernel does not say."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHED)
    except OSError:
        return None


class SettingsReader(threading.local):
    """Reads the settings of threads. Several threads may use one object: each has a buffer of its own."""

    def __init__(self) -> None:
        # A set of os.sched_getaffinity costs microseconds for each hundred CPUs. The kernel refuses a buffer that has
        # no room for all CPUs that the host can have; a longer one takes longer.
        for size in (8, 16, 32, 64, 128, 256, 512, MAX_CPUS // 8):
            self._mask = (ctypes.c_char * size)()
            self._address, self.size = ctypes.addressof(self._mask), size
            if not _get_affinity(0, size, self._address):
                break

    def read(self, tid: int) -> Settings | None:
        """The settings of a thread, None where it has ended or the kernel does not say."""
        mask = self.mask(tid)
        try:
            return None if mask is None else (mask, os.sched_getscheduler(tid))
        except OSError:
            return None

    def mask(self, tid: int) -> bytes | None:
        """The affinity of a thread as bits, the lowest CPUs first, without CPUs that are offline."""
        return None if _get_affinity(tid, self.size, self._address) else self._mask.raw


def are_of(root: Path) -> bool:
    """Whether the clocks are those of the processes below ``root``: its /proc shows this process by the id that it has
    itself, so it shows the same PID namespace (NSpid of proc_pid_status(5))."""
    if root != Path("/"):
        return False
    try:
        status = read("/proc/self/status")
    except OSError:
        return False
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [])
    return ids == [b"%d" % os.getpid()]
