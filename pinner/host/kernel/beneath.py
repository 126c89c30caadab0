"""Opens files of a cgroup beneath the controller's mount: no path leads out of the mount, whatever it contains.

The kernel resolves the path (openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, since Linux 5.6). Kernels without
openat2 get the same result from one openat(2) with O_NOFOLLOW for each part of the path.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pinner.host.kernel import files, openat2
from pinner.model.errors import Invalid

_RESOLVE = openat2.RESOLVE_NO_MAGICLINKS | openat2.RESOLVE_NO_SYMLINKS | openat2.RESOLVE_BENEATH

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH = 4096
"""PATH_MAX of Linux."""

_BUFFER = 65536
"""More than a cpuset's file has: 8,192 CPUs as a list take 40 KiB at most."""


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
    top = files.open_file(mount, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
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
    return openat2.open_path(top, path, path.split("/"), _FOLDER, _RESOLVE)


def read(folder: int, name: str) -> str | None:
    """The text of the file ``name`` of the open folder, without white space at its ends; None: it cannot be read."""
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
    """Write the existing file ``name`` of the open folder; a symbolic link is refused. Raises OSError."""
    file = files.open_file(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
