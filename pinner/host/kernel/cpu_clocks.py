"""What the kernel says of a process by one system call; a file of /proc costs three, and a text.

While the CPU clock of a process (clock_getcpuclockid(3)) stands still, no thread ran, began or ended. Linux gives the
clock of a thread only to its own process (pid_for_clock in kernel/time/posix-cpu-timers.c), so other threads are read
from files.
"""

import ctypes
import os
import threading
import time
from pathlib import Path

from pinner.host.kernel.files import read
from pinner.model.cpuset import MAX_CPUS

_SCHED = 2
"""CPUCLOCK_SCHED, in nanoseconds (include/linux/posix-timers_types.h)."""

Settings = tuple[bytes, int]
"""Affinity as bits, and scheduling policy. Other programs may change both while the thread sleeps."""

_libc = ctypes.CDLL(None)
_get_affinity = _libc.sched_getaffinity
_get_affinity.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)


def ran_ns(pid: int) -> int | None:
    """CPU time with ended threads; None where the kernel does not say."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHED)
    except OSError:
        return None


class SettingsReader(threading.local):
    """Threads may share it: each has a buffer of its own."""

    def __init__(self) -> None:
        # A set of os.sched_getaffinity costs microseconds for each hundred CPUs. The kernel refuses a buffer that has
        # no room for all CPUs that the host can have; a longer one takes longer.
        for size in (8, 16, 32, 64, 128, 256, 512, MAX_CPUS // 8):
            self._mask = (ctypes.c_char * size)()
            self._address, self.size = ctypes.addressof(self._mask), size
            if not _get_affinity(0, size, self._address):
                break

    def read(self, tid: int) -> Settings | None:
        mask = self.mask(tid)
        try:
            return None if mask is None else (mask, os.sched_getscheduler(tid))
        except OSError:
            return None

    def mask(self, tid: int) -> bytes | None:
        """Bits, the lowest CPUs first, without offline CPUs."""
        return None if _get_affinity(tid, self.size, self._address) else self._mask.raw


def are_of(root: Path) -> bool:
    """Whether /proc below ``root`` shows this process by its own id: the same PID namespace."""
    if root != Path("/"):
        return False
    try:
        status = read("/proc/self/status")
    except OSError:
        return False
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [])
    return ids == [b"%d" % os.getpid()]
