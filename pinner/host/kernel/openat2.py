"""Opens a path that cannot lead out of a folder, by the system call openat2(2), since Linux 5.6."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable

from pinner.host.kernel import files

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
"""A path that leads out of the folder is refused."""
RESOLVE_IN_ROOT = 0x10
"""The folder is the root of the path and of each symbolic link on its way, as after chroot(2)."""

_OPENAT2 = 437
"""The number of the system call: the same on every architecture (Linux unifies new numbers since 5.1)."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(top: int, path: str, flags: int, resolve: int) -> int:
    """The descriptor of ``path``, resolved from the open folder ``top``. Raises OSError; ENOSYS on older kernels, and
    EPERM under a seccomp filter that does not know the call."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    found = _libc.syscall(_OPENAT2, top, ctypes.c_char_p(name), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(found)


def open_path(top: int, path: str, names: Iterable[str], flags: int, resolve: int) -> int:
    """The descriptor of ``path``, as ``openat2`` resolves it; without that call, of ``names``, the parts of the path.

    Raises OSError, and Busy where no descriptor is left.
    """
    try:
        return openat2(top, path, flags, resolve)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: a seccomp filter that does not know the call
            raise files.known(error) from None
    return _open_by_parts(top, path, names, flags | os.O_NOFOLLOW)


def _open_by_parts(top: int, path: str, names: Iterable[str], flags: int) -> int:
    """One openat(2) for each part of the path. Raises OSError; ELOOP or ENOTDIR for a symbolic link, and Busy."""
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
