"""Watches files for writes with inotify(7).

The kernel reports a write(2) to a cgroup's file, but not its own changes, except of cpuset.cpus.partition.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from pinner.host.kernel.netlink import EventsLost
from pinner.model.errors import NotPermitted

_MODIFY = 0x2
_OVERFLOW = 0x4000
_EVENT = struct.Struct("=iIII")
_BUFFER = 65536


class FileWritten(NamedTuple):
    file: str


class Inotify:
    """It never blocks. Raises NotPermitted at the kernel's limit of instances."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise NotPermitted("file events", f"inotify_init1 fails: {os.strerror(ctypes.get_errno())}")
        self._watches: dict[int, str] = {}

    def fileno(self) -> int:
        return int(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def watch(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Watch these files only. Returns those beyond fs.inotify.max_user_watches.

        Missing files are left out. A file that was created anew must be watched again.
        """
        wanted: dict[int, str] = {}
        refused = []
        for path in paths:
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), ctypes.c_uint32(_MODIFY))
            if watch >= 0:
                wanted[watch] = path
            elif ctypes.get_errno() == errno.ENOSPC:
                refused.append(path)
        for watch in self._watches.keys() - wanted.keys():
            self._libc.inotify_rm_watch(self._descriptor, watch)
        self._watches = wanted
        return tuple(refused)

    def read(self) -> Iterator[FileWritten | EventsLost]:
        written: dict[FileWritten | EventsLost, None] = {}
        with suppress(BlockingIOError):
            events = os.read(self._descriptor, _BUFFER)
            at = 0
            while at < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    written[EventsLost("file events")] = None
                elif mask & _MODIFY and watch in self._watches:
                    written[FileWritten(self._watches[watch])] = None
        yield from written
