"""Readers of small files of /proc and /sys. A missing, unreadable or malformed file is None; the caller interprets it.

Where no file descriptor or memory is left, nothing is known about a file: then every reader raises Busy. It must not
look as if a thread had ended, or as if the host had no such file.

The kernel writes sets of CPUs as lists (``0-3,8``) or as masks of 32-bit words in hexadecimal (``0000000f,ffffffff``);
Documentation/admin-guide/cputopology.rst.
"""

import errno
import os
import re
from pathlib import Path

from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import Busy, Invalid

MOST = 256 * 1024**2
"""Bytes of the longest file that is read: a folder given as the root of a captured machine may contain anything."""
_BUFFER = 16384
_READING = os.O_RDONLY | os.O_NONBLOCK
"""A pipe in the folder of a captured machine has no writer to wait for; files of /proc and /sys never wait."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def known(error: OSError) -> OSError:
    """The error, if it says something about the file. Raises Busy where no descriptor or memory was left to open it."""
    if error.errno in _EXHAUSTED:
        raise Busy("this host", f"no file can be opened ({error.strerror})", overdue=False) from None
    return error


def open_file(path: str | Path, flags: int, folder: int | None = None) -> int:
    """os.open; ``path`` is relative to the open ``folder`` if given. Raises OSError, Busy."""
    try:
        return os.open(path, flags, dir_fd=folder)
    except OSError as error:
        raise known(error) from None


def names(folder: str | Path) -> list[str]:
    """The names in a folder; none where it does not exist or cannot be read. Raises Busy."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - Path objects are too slow
    except OSError as error:
        known(error)
        return []


def read(path: str, folder: int | None = None, *, records: bool = False) -> bytes:
    """The whole file, read with as few system calls as possible; ``path`` is relative to the open ``folder`` if given.

    The kernel returns a file of many ``records`` (numa_maps, cpuinfo, mounts) in pieces of at most a page, with any
    buffer size. For such a file a short read does not mean the end of the file. Raises OSError (EFBIG for a file that
    is longer than MOST), Busy.
    """
    file = open_file(path, _READING, folder)
    try:
        data = part = os.read(file, _BUFFER)
        if not (len(part) == _BUFFER or (part and records)):
            return data
        parts, length = [data], len(data)
        while len(part) == _BUFFER or (part and records):
            part = os.read(file, _BUFFER)
            parts.append(part)
            if (length := length + len(part)) > MOST:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return b"".join(parts)
    finally:
        os.close(file)


def read_start(path: str, length: int, folder: int | None = None) -> bytes:
    """The first ``length`` bytes of the file, or all where it is shorter: for a file whose length its owner chooses.

    Raises OSError, Busy.
    """
    file = open_file(path, _READING, folder)
    try:
        return os.read(file, length)
    finally:
        os.close(file)


class Folder:
    """An open folder; the context manager returns its file descriptor. Raises OSError, Busy."""

    def __init__(self, path: str) -> None:
        self._descriptor = open_file(path, os.O_PATH | os.O_DIRECTORY)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def decode(data: bytes) -> str:
    """Text that can always be written as UTF-8: undecodable bytes are escaped."""
    return data.decode("utf-8", "backslashreplace")


def decoded(name: str) -> str:
    """A file's name as text that can always be written as UTF-8."""
    return decode(os.fsencode(name))


def text(path: Path) -> str | None:
    """A file's text without leading and trailing white space.

    Linux 5.15-rc and some older kernels end lists and masks of CPUs and nodes with a NUL, which is no part of the text
    (commit c86a2d9058c5 of Linux: "cpumask: Omit terminating null byte in cpumap_print_{list,bitmask}_to_buf").
    """
    try:
        return decode(read(str(path), records=True)).rstrip("\0").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The number in a file; a negative number means "unknown" in these files and is None."""
    try:
        value = int(text(path) or "")
    except ValueError:
        return None
    return value if value >= 0 else None


def cpu_list(path: Path) -> CpuSet | None:
    """The CPU list in a file."""
    content = text(path)
    if content is None:
        return None
    try:
        return CpuSet.parse(content)
    except Invalid:
        return None


def cpu_set(folder: Path, list_name: str, mask_name: str) -> CpuSet | None:
    """The CPUs in two files of a folder, which the kernel writes as a list and as a mask.

    The mask is read where the list is missing, malformed or empty; None where both are missing or malformed.
    """
    return cpu_list(folder / list_name) or cpu_mask(folder / mask_name)


def cpu_mask(path: Path) -> CpuSet | None:
    """The CPU mask in a file."""
    return parse_mask(text(path) or "")


def parse_mask(content: str) -> CpuSet | None:
    """The CPUs of a mask."""
    try:
        mask = int(content.replace(",", ""), 16)
    except ValueError:
        return None
    if not 0 <= mask < 1 << MAX_CPUS:
        return None
    return CpuSet(mask)


def numbered(folder: Path, prefix: str) -> dict[int, Path]:
    """The folder's entries whose name is ``prefix`` and a number, by ascending number."""
    pattern = re.compile(re.escape(prefix) + r"(\d{1,9})", re.ASCII)
    found = {int(match[1]): folder / name for name in names(folder) if (match := pattern.fullmatch(name))}
    return dict(sorted(found.items()))


def numbers(folder: str) -> list[str]:
    """The names in a folder that are numbers, ascending; none where the folder does not exist."""
    return sorted(filter(str.isdecimal, names(folder)), key=int)
