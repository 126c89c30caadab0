"""Compressed files that are complete and on disk before they have their name."""

import fcntl
import gzip
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pinner import whole_file
from pinner.model.errors import StoreUnavailable

_PART = ".unfinished-"
"""The next file removes what a killed process left."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Creates the folder. Raises StoreUnavailable where another one writes already."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # The folder itself cannot be locked on NFS.
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(str(folder), error.strerror or str(error)) from None
    try:
        _lock(lock, folder)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreUnavailable(str(folder), "another export writes to this folder") from None
    except OSError as error:
        raise StoreUnavailable(str(folder), error.strerror or str(error)) from None


def write_durably(path: Path, lines: Iterable[str]) -> None:
    """Write a gzip file of lines with their line ends, for this user alone. Creates the folder; nothing stays of an
    incomplete file. Raises StoreUnavailable."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        for unfinished in path.parent.glob(f"{_PART}*"):
            unfinished.unlink(missing_ok=True)
        with (
            whole_file.replacing(path, 0o600, path.parent, _PART) as file,
            gzip.GzipFile("", fileobj=file, mode="wb", mtime=0) as packed,
        ):
            packed.writelines(line.encode() for line in lines)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from None
