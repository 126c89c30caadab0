"""Files that are complete and on disk before they have their name: no reader and no crash sees a part of one."""

import fcntl
import gzip
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pinner.model.errors import StoreUnavailable

DRAFT = ".pinner-draft-"
"""The begin of the name of each draft; a process that is killed leaves its draft behind."""


def create(path: Path, content: bytes) -> None:
    """Create a file of mode 0600; the first one counts. Raises OSError; then there is no file."""
    with draft(path.parent) as new:
        with _on_disk(new) as file:
            file.write(content)
        publish(new, path)


def replace(path: Path, content: bytes, mode: int = 0o600, drafts: Path | None = None) -> None:
    """``drafts``: the draft's folder. Raises OSError; then the file is as before."""
    with replacing(path, mode, drafts or path.parent) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, mode: int, drafts: Path, prefix: str = DRAFT) -> Iterator[BinaryIO]:
    """``path`` names the file once the context has written it without an error; see ``replace``."""
    with draft(drafts, prefix) as new:
        with _on_disk(new) as file:
            yield file
        # Last: nobody else reads or runs a file that is not complete.
        new.chmod(mode)
        new.replace(path)


@contextmanager
def draft(folder: Path, prefix: str = DRAFT) -> Iterator[Path]:
    """A new and empty file of mode 0600, removed with the context if it still has its name. Raises OSError."""
    number, name = tempfile.mkstemp(prefix=prefix, dir=folder)
    os.close(number)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def publish(new: Path, path: Path) -> None:
    """Does nothing where another file has the name. Raises OSError."""
    with suppress(FileExistsError):
        os.link(new, path)


@contextmanager
def _on_disk(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


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
    """Write a gzip file of lines with their line ends, for this user alone, whole or not at all. Creates the folder.
    Raises StoreUnavailable."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        for unfinished in path.parent.glob(f"{_PART}*"):
            unfinished.unlink(missing_ok=True)
        with (
            replacing(path, 0o600, path.parent, _PART) as file,
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
