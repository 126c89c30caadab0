"""Which of some files were written: inotify(7), which Python's library lacks.

A write(2) to a file of a cgroup is told like any other; what the kernel changes there by itself is not, but for the
files that it says so of (cpuset.cpus.partition).
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from pinner.host.netlink import Lost
from pinner.model.errors import NotPermitted

_MODIFY = 0x2
_OVERFLOW = 0x4000
_EVENT = struct.Struct("=iIII")
_BUFFER = 65536


class Written(NamedTuple):
    """A file that is watched was written."""

    file: str


class Inotify:
    """Watches files for writes; never blocks. Raises NotPermitted where the kernel has no more instances to give."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise NotPermitted("file events", f"no inotify instance: {os.strerror(ctypes.get_errno())}")
        self._watches: dict[int, str] = {}

    def fileno(self) -> int:
        """For a selector."""
        return int(self._descriptor)

    def close(self) -> None:
        """Watch no more."""
        os.close(self._descriptor)

    def watch(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Watch these files and no others. Those that are not there are left out; comes back with those that the
        kernel has no watch left for (fs.inotify.max_user_watches).

        A file that was removed and made again under its name is another one: call this again when that may be so.
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

    def read(self) -> Iterator[Written | Lost]:
        """The files that were written since the last look, each once."""
        written: dict[Written | Lost, None] = {}
        with suppress(BlockingIOError):
            events = os.read(self._descriptor, _BUFFER)
            at = 0
            while at < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    written[Lost("file events")] = None
                elif mask & _MODIFY and watch in self._watches:
                    written[Written(self._watches[watch])] = None
        yield from written
