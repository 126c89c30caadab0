"""Files that are complete and on disk before they have their name: no reader and no crash sees a part of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

DRAFT = ".pinner-draft-"
"""The begin of the name of each draft; a process that is killed leaves its draft behind."""


def create(path: Path, content: bytes) -> None:
    """Create a file of mode 0600. If another process creates it at the same time, the first file counts. Raises
    OSError; then there is no file."""
    with draft(path.parent) as new:
        with _on_disk(new) as file:
            file.write(content)
        publish(new, path)


def replace(path: Path, content: bytes, mode: int = 0o600, drafts: Path | None = None) -> None:
    """Create or replace a file. ``drafts``: the draft's folder, if not that of the file. Raises OSError; then the file
    is as before."""
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
    """A new and empty file of mode 0600, which ends with the context if it still has its name. Raises OSError."""
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
