"""Opens files of a cgroup beneath the controller's mount: no path leads out of the mount, whatever it contains.

The kernel resolves the path (openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, since Linux 5.6). Kernels without
openat2 get the same result from one openat(2) with O_NOFOLLOW for each part of the path.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pinner.host import files
from pinner.model.errors import Invalid

_OPENAT2 = 437
"""The number of the system call: the same on every architecture (Linux unifies new numbers since 5.1)."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE = _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH = 4096
"""PATH_MAX of Linux."""

_BUFFER = 65536
"""More than a cpuset's file has: 8,192 CPUs as a list take 40 KiB at most."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def require_plain(path: str) -> None:
    """Raises Invalid unless ``path`` is a relative path of plain names: no ``..``, no ``.``, no empty name, no NUL."""
    names = path.split("/")
    if len(path) > _MAX_PATH or "\0" in path or any(name in ("", ".", "..") for name in names):
        raise Invalid("cgroup", path[:80], "a relative path of names, without .. and without NUL")


@contextmanager
def folder(mount: Path, path: str) -> Iterator[int]:
    """The descriptor of the folder at ``path`` beneath ``mount``.

    Raises Invalid for a path that is not plain, and OSError where there is no such folder (ELOOP or ENOTDIR for a
    symbolic link).
    """
    require_plain(path)
    top = os.open(mount, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = open_folder(top, path)
    finally:
        os.close(top)
    try:
        yield found
    finally:
        os.close(found)


def open_folder(top: int, path: str) -> int:
    """The descriptor of the folder at the plain ``path`` beneath the open folder ``top``. Raises OSError."""
    try:
        return _openat2(top, path)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: a seccomp filter that does not know the call
            raise
    return open_by_parts(top, path)


def open_by_parts(top: int, path: str) -> int:
    """Like ``open_folder``, with one openat(2) for each part of the path."""
    opened = os.dup(top)
    for name in path.split("/"):
        outer = opened
        try:
            opened = os.open(name, _FOLDER, dir_fd=outer)
        finally:
            os.close(outer)
    return opened


def read(folder: int, name: str) -> str | None:
    """The text of the file ``name`` of the open folder, without white space at its ends; None: it cannot be read."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        return files.decode(os.read(file, _BUFFER)).strip()
    except OSError:
        return None
    finally:
        os.close(file)


def write(folder: int, name: str, text: str) -> None:
    """Write the existing file ``name`` of the open folder; a symbolic link is refused. Raises OSError."""
    file = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _openat2(top: int, path: str) -> int:
    how = _OpenHow(_FOLDER, 0, _RESOLVE)
    name = os.fsencode(path)
    found = _libc.syscall(_OPENAT2, top, ctypes.c_char_p(name), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(found)
