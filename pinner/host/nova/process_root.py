"""Files below the root directory of a process, also in a container with mounts of its own.

The kernel resolves each path (openat2(2) with RESOLVE_IN_ROOT): the absolute targets of symbolic links and ``..`` stay
below that root. Kernels without openat2 open a path without symbolic links only.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from pinner.host.kernel import beneath, files
from pinner.model.errors import Invalid

MAX_FILE = 1 << 20
"""Bytes of a file that are read. A complete nova.conf with all comments has 0.5 MiB."""

_NULL = os.makedev(1, 3)
"""The number of the device /dev/null, of any name."""
_PATH = os.O_PATH | os.O_CLOEXEC
_RESOLVE = beneath.RESOLVE_IN_ROOT | beneath.RESOLVE_NO_MAGICLINKS


class ProcessRoot:
    """The open root directory of a process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def exists(self, path: str) -> bool:
        """Whether the path exists, after symbolic links. Raises Busy."""
        try:
            with self._opened(path):
                return True
        except OSError:
            return False

    def stat(self, path: str) -> os.stat_result:
        """The status of the file, after symbolic links. Raises OSError."""
        with self._opened(path) as found:
            return os.fstat(found)

    def names(self, path: str) -> list[str]:
        """The names in a folder; none where ``path`` is no folder. Raises OSError where the folder cannot be read."""
        try:
            with self._opened(path) as found:
                return os.listdir(f"/proc/self/fd/{found}")  # noqa: PTH208 - an open descriptor
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise files.known(error) from None

    def read(self, path: str) -> bytes:
        """The content of a regular file; none of /dev/null, which administrators use as an empty file. Raises OSError,
        and Invalid for another kind of file or a file that is larger than ``MAX_FILE``: a pipe would block the reader,
        and a device may do anything when it is opened."""
        with self._opened(path) as found:
            status = os.fstat(found)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL:
                return b""
            _require_regular(path, status)
            # The file is known to be regular, so a second open by its descriptor has no side effect.
            with os.fdopen(files.open_file(f"/proc/self/fd/{found}", os.O_RDONLY), "rb") as file:
                content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise Invalid("nova.conf", path, f"a file of at most {MAX_FILE} bytes")
        return content

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        found = self._open(path)
        try:
            yield found
        finally:
            os.close(found)

    def _open(self, path: str) -> int:
        if "\0" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        names = filter(None, os.path.normpath(f"/{path}").split("/"))
        return beneath.open_path(self._descriptor, path, names, _PATH, _RESOLVE)


@contextmanager
def opened(folder: str, process: int | None = None) -> Iterator[ProcessRoot]:
    """The root directory at ``folder``, or at that name in the open /proc/PID folder ``process``. Raises OSError."""
    descriptor = files.open_file(folder, _PATH | os.O_DIRECTORY, process)
    try:
        yield ProcessRoot(descriptor)
    finally:
        os.close(descriptor)


def is_roots_own(found: os.stat_result) -> bool:
    """Whether a regular file belongs to root, and only root can write it."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _require_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise Invalid("nova.conf", path, "a regular file")
