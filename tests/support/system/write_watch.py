"""Watches which files the processes of this machine open for writing (fanotify(7)); only root may."""

import ctypes
import errno
import os
import select
import struct
import threading
from collections import defaultdict
from pathlib import Path

_INIT_FLAGS = 0x1 | 0x2 | 0x10
"""FAN_CLOEXEC, FAN_NONBLOCK, FAN_UNLIMITED_QUEUE."""
_MARK_FLAGS = 0x1 | 0x10
"""FAN_MARK_ADD, FAN_MARK_MOUNT."""
_EVENTS = 0x2 | 0x8
"""FAN_MODIFY, and FAN_CLOSE_WRITE: a file that was open for writing is closed, whether it was written or not."""
_EVENT = struct.Struct("=IBBHQii")
"""struct fanotify_event_metadata."""
_GONE = (errno.ESRCH, errno.ENODEV, errno.ENXIO)
"""The errors of a file of a process that has ended, or of a device that has gone: the kernel drops the event."""

_libc = ctypes.CDLL(None, use_errno=True)


class WriteWatch:
    """The files on every mount that processes opened for writing, by process id, from the start to ``close``."""

    def __init__(self) -> None:
        """Raises OSError where the kernel has no fanotify."""
        self._written: defaultdict[int, set[str]] = defaultdict(set)
        self._events = _libc.fanotify_init(_INIT_FLAGS, os.O_RDONLY | os.O_LARGEFILE)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), "fanotify_init")
        points = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
        marked = [point for point in sorted(points) if self._mark(point)]
        assert "/" in marked
        assert "/proc" in marked
        self._end, self._ended = os.pipe()
        self._reading = threading.Thread(target=self._read, name="write-watch", daemon=True)
        self._reading.start()

    def close(self) -> None:
        """Stop, after all events until now are read."""
        os.close(self._ended)
        self._reading.join()
        os.close(self._end)
        os.close(self._events)

    def by(self, pid: int) -> set[str]:
        """The paths of the files that a process opened for writing."""
        return self._written[pid]

    def _mark(self, point: str) -> bool:
        mask = ctypes.c_uint64(_EVENTS)
        return _libc.fanotify_mark(self._events, _MARK_FLAGS, mask, -100, os.fsencode(point)) == 0

    def _read(self) -> None:
        ended = False
        while not ended:
            ended = self._end in select.select([self._events, self._end], [], [])[0]
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                continue
            while data:
                length, _, _, _, _, file, pid = _EVENT.unpack_from(data)
                self._written[pid].add(str(Path(f"/proc/self/fd/{file}").readlink()))
                os.close(file)
                data = data[length:]
