"""Files below the root directory of a process, also in a container with mounts of its own.

openat2(2) with RESOLVE_IN_ROOT: links and ``..`` stay below that root. Older kernels open a path without symbolic links
only.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from pinner.host.kernel import beneath, files
from pinner.model.errors import Invalid

MAX_FILE = 1 << 20
"""Bytes. A nova.conf with all comments has 0.5 MiB."""

_NULL = os.makedev(1, 3)
_PATH = os.O_PATH | os.O_CLOEXEC
_RESOLVE = beneath.RESOLVE_IN_ROOT | beneath.RESOLVE_NO_MAGICLINKS


class ProcessRoot:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def exists(self, path: str) -> bool:
        """After symbolic links. Raises Busy."""
        try:
            with self._opened(path):
                return True
        except OSError:
            return False

    def stat(self, path: str) -> os.stat_result:
        """After symbolic links. Raises OSError."""
        with self._opened(path) as found:
            return os.fstat(found)

    def names(self, path: str) -> list[str]:
        """Empty where ``path`` is no folder. Raises OSError."""
        try:
            with self._opened(path) as found:
                return os.listdir(f"/proc/self/fd/{found}")  # noqa: PTH208 - an open descriptor
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise files.known(error) from None

    def read(self, path: str) -> bytes:
        """Nothing of /dev/null, which administrators use as an empty file. Raises OSError; Invalid for another kind of
        file (a pipe would block) or one above ``MAX_FILE``."""
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
    """``folder`` is a path, or a name in the open /proc/PID ``process``. Raises OSError."""
    descriptor = files.open_file(folder, _PATH | os.O_DIRECTORY, process)
    try:
        yield ProcessRoot(descriptor)
    finally:
        os.close(descriptor)


def is_roots_own(found: os.stat_result) -> bool:
    """Regular, root's, and only root can write it."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _require_regular(path: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise Invalid("nova.conf", path, "a regular file")
