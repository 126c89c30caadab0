"""What the kernel says of a process by one system call, where a file of /proc costs three. While its CPU clock
(clock_getcpuclockid(3)) stands still, no thread ran, began or ended, so files need not be read again. A thread's clock
is for its own process only (pid_for_clock in kernel/time/posix-cpu-timers.c)."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Container
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel.files import read
from pinner.model.change import Target, ThreadKey, ThreadMask
from pinner.model.cpuset import MAX_CPUS, CpuSet

_SCHED = 2
"""CPUCLOCK_SCHED, in nanoseconds (include/linux/posix-timers_types.h)."""

Settings = tuple[bytes, int]
"""Affinity as bits, and scheduling policy."""

_libc = ctypes.CDLL(None)
_get_affinity = _libc.sched_getaffinity
_get_affinity.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p)


def ran_ns(pid: int) -> int | None:
    """CPU time, with that of ended threads; None where the kernel does not say."""
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
    """Whether /proc below ``root`` is of this process's PID namespace."""
    if root != Path("/"):
        return False
    try:
        status = read("/proc/self/status")
    except OSError:
        return False
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [])
    return ids == [b"%d" % os.getpid()]


class _Known(NamedTuple):
    process: ThreadKey
    ran_ns: int
    masks: tuple[ThreadMask, ...]
    bits: list[bytes | None]


class KnownMasks:
    """The masks of QEMU's threads. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[Target, _Known] = {}
        self._settings = SettingsReader()

    def masks(
        self, target: Target, process: ThreadKey | None, read: Callable[[], tuple[ThreadMask, ...]]
    ) -> tuple[ThreadMask, ...]:
        """``read`` reads them from files. ``process`` is the first thread of the target's process."""
        ran, known = ran_ns(process.tid) if process else None, self._known.get(target)
        if known and ran == known.ran_ns and process == known.process and self._bits(known.masks) == known.bits:
            return known.masks
        masks = read()
        if process is not None and ran is not None:
            bits = self._bits(masks)
            # The kernel leaves out CPUs that are offline; then its bits do not say what the file says.
            if bits == [_bits_of(each.cpus, self._settings.size) for each in masks]:
                self._known[target] = _Known(process, ran, masks, bits)
        return masks

    def keep(self, guests: Container[str]) -> None:
        for target in [target_of for target_of in tuple(self._known) if target_of.owner not in guests]:
            self._known.pop(target, None)

    def _bits(self, masks: tuple[ThreadMask, ...]) -> list[bytes | None]:
        ask = self._settings.mask
        return [ask(thread.tid) for thread in masks]


@lru_cache(maxsize=4096)
def _bits_of(cpus: CpuSet, size: int) -> bytes:
    try:
        return sum(1 << cpu for cpu in cpus).to_bytes(size, "little")
    except OverflowError:
        return b""
