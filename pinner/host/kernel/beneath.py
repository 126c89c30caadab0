"""Opens files beneath a folder: no path leads out of it. The kernel resolves the path (openat2(2), since Linux 5.6);
older ones get one openat(2) with O_NOFOLLOW for each part."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pinner.host.kernel import files
from pinner.model.errors import Invalid

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10

_OPENAT2 = 437
"""Every architecture has this number (Linux unifies new numbers since 5.1)."""

_libc = ctypes.CDLL(None, use_errno=True)

_RESOLVE = RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH = 4096

_BUFFER = 65536
"""Bytes. A cpuset's list of 8,192 CPUs takes 40 KiB at most."""


def require_plain(path: str) -> None:
    """Raises Invalid unless ``path`` is relative, without NUL, and no name in it is ``..``, ``.`` or empty."""
    names = path.split("/")
    if len(path) > _MAX_PATH or "\0" in path or any(name in ("", ".", "..") for name in names):
        raise Invalid("cgroup", path[:80], "a relative path of names, without .. and without NUL")


@contextmanager
def folder(mount: Path, path: str) -> Iterator[int]:
    """Gives the descriptor. Raises Invalid unless ``path`` is plain, OSError (ELOOP or ENOTDIR: a symbolic link)."""
    require_plain(path)
    top = files.open_file(mount, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = open_folder(top, path)
    finally:
        os.close(top)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_folder(top: int, path: str) -> int:
    """``path`` must be plain. Raises OSError."""
    return open_path(top, path, path.split("/"), _FOLDER, _RESOLVE)


def read(folder: int, name: str) -> str | None:
    """The stripped text; None where the file cannot be read."""
    try:
        file = files.open_file(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
    except OSError:
        return None
    try:
        return files.decode(os.read(file, _BUFFER)).strip()
    except OSError:
        return None
    finally:
        os.close(file)


def write(folder: int, name: str, text: str) -> None:
    """The file must exist. Raises OSError, also for a symbolic link."""
    file = files.open_file(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(top: int, path: str, flags: int, resolve: int) -> int:
    """Raises OSError: ENOSYS on older kernels, EPERM under a seccomp filter that does not know the call."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    descriptor = _libc.syscall(
        _OPENAT2, top, ctypes.c_char_p(name), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
    )
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(descriptor)


def open_path(top: int, path: str, names: Iterable[str], flags: int, resolve: int) -> int:
    """As ``openat2``, or without that call by ``names``, the parts of the path. Raises OSError, Busy."""
    try:
        return openat2(top, path, flags, resolve)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: a seccomp filter that does not know the call
            raise files.known(error) from None
    return _open_by_parts(top, path, names, flags | os.O_NOFOLLOW)


def _open_by_parts(top: int, path: str, names: Iterable[str], flags: int) -> int:
    opened = files.open_file(".", flags, top)
    for name in names:
        outer = opened
        try:
            opened = files.open_file(name, flags, outer)
        finally:
            os.close(outer)
        if stat.S_ISLNK(os.fstat(opened).st_mode):
            os.close(opened)
            raise OSError(errno.ELOOP, "a symbolic link, which this kernel cannot follow safely", path)
    return opened
