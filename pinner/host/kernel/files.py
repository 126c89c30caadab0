"""Readers of small files of /proc and /sys, CPU sets as in admin-guide/cputopology.rst. A missing, unreadable or
malformed file is None; but without descriptors or memory they raise Busy: the file must not look missing."""

import errno
import os
import re
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import Busy, Invalid

MOST = 256 * 1024**2
"""Bytes: the root of a captured machine may contain anything."""
_BUFFER = 16384
_READING = os.O_RDONLY | os.O_NONBLOCK
"""A pipe in a captured machine has no writer to wait for; files of /proc and /sys never wait."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def known(error: OSError) -> OSError:
    """Raises Busy for an error that says nothing about the file."""
    if error.errno in _EXHAUSTED:
        raise Busy("this host", f"no file can be opened ({error.strerror})", overdue=False) from None
    return error


def open_file(path: str | Path, flags: int, folder: int | None = None) -> int:
    """Raises OSError, Busy."""
    try:
        return os.open(path, flags, dir_fd=folder)
    except OSError as error:
        raise known(error) from None


def names(folder: str | Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - Path objects are too slow
    except OSError as error:
        known(error)
        return []


def first_names(folder: Path, most: int, wanted: Callable[[os.DirEntry[str]], bool] = lambda _: True) -> list[str]:
    """In the folder's own order."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(filter(wanted, entries), most)]
    except OSError as error:
        known(error)
        return []


def folders(folder: Path, most: int) -> list[Path]:
    """Without links."""
    return [folder / name for name in first_names(folder, most, lambda entry: entry.is_dir(follow_symlinks=False))]


def read(path: str, folder: int | None = None, *, records: bool = False) -> bytes:
    """Raises OSError (EFBIG beyond MOST), Busy. A file of ``records`` (numa_maps, cpuinfo, mounts) comes in pieces of a
    page: a short read is not its end."""
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
    """Raises OSError, Busy."""
    file = open_file(path, _READING, folder)
    try:
        return os.read(file, length)
    finally:
        os.close(file)


class Folder:
    """A context manager that gives the descriptor. Raises OSError, Busy."""

    def __init__(self, path: str) -> None:
        self._descriptor = open_file(path, os.O_PATH | os.O_DIRECTORY)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def decode(data: bytes) -> str:
    """Undecodable bytes are escaped, so the text can be written as UTF-8."""
    return data.decode("utf-8", "backslashreplace")


def decoded(name: str) -> str:
    return decode(os.fsencode(name))


def text(path: Path) -> str | None:
    """The stripped text, without the NUL that Linux 5.15-rc and older set after lists and masks (c86a2d9058c5)."""
    try:
        return decode(read(str(path), records=True)).rstrip("\0").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """None also for a negative number ("unknown" here), and above 64 bits: no snapshot could be read with it."""
    try:
        value = int(text(path) or "")
    except ValueError:
        return None
    return value if 0 <= value < 1 << 64 else None


def cpu_list(path: Path) -> CpuSet | None:
    content = text(path)
    if content is None:
        return None
    try:
        return CpuSet.parse(content)
    except Invalid:
        return None


def counts(folder: Path, names: Iterable[str]) -> dict[str, int]:
    values = ((name, number(folder / name)) for name in names)
    return {name: value for name, value in values if value is not None}


def cpu_set(folder: Path, list_name: str, mask_name: str) -> CpuSet | None:
    return cpu_list(folder / list_name) or cpu_mask(folder / mask_name)


def first_cpu_set(folder: Path, names: Iterable[tuple[str, str]]) -> CpuSet | None:
    return next((cpus for list_name, mask_name in names if (cpus := cpu_set(folder, list_name, mask_name))), None)


def cpu_mask(path: Path) -> CpuSet | None:
    return parse_mask(text(path) or "")


def parse_mask(content: str) -> CpuSet | None:
    try:
        mask = int(content.replace(",", ""), 16)
    except ValueError:
        return None
    if not 0 <= mask < 1 << MAX_CPUS:
        return None
    return CpuSet(mask)


def numbered(folder: Path, prefix: str) -> dict[int, Path]:
    """Entries named ``prefix`` and a number, ascending."""
    pattern = re.compile(re.escape(prefix) + r"(\d{1,9})", re.ASCII)
    paths = {int(match[1]): folder / name for name in names(folder) if (match := pattern.fullmatch(name))}
    return dict(sorted(paths.items()))


def numbers(folder: str) -> list[str]:
    return sorted(filter(str.isdecimal, names(folder)), key=int)
