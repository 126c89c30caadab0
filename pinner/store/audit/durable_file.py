"""Compressed files that are complete and on disk before they have their name."""

import fcntl
import gzip
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pinner.model.errors import StoreUnavailable

_PART = ".unfinished.part"
"""One name for all files: the next file overwrites what a killed process left."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep others from writing to a folder, which is created if missing. Raises StoreUnavailable where one does
    already."""
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
    """Write lines, each with its line end, to a gzip file that only this user may read.

    Creates the folder. Nothing stays of an incomplete file. Raises StoreUnavailable.
    """
    part = path.with_name(_PART)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            _write(part, lines)
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from None


def _write(path: Path, lines: Iterable[str]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as raw:
        os.fchmod(raw.fileno(), 0o600)
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
            for line in lines:
                packed.write(line.encode())
        raw.flush()
        os.fsync(raw.fileno())
