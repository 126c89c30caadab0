"""Whether a folder has room for what a run writes next."""

import os
import tempfile
from pathlib import Path

from pinner.model.errors import StoreUnavailable

ROOM = 1 << 20
"""Bytes; the records of a run of 500 changes."""


def require_room(folder: Path) -> None:
    """Raises StoreUnavailable where ROOM bytes cannot be written to a file of the folder: the disk is full, a quota is
    used up, or the file system is read-only. Nothing is left there."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError as error:
        raise StoreUnavailable(str(folder), f"no room for the next run: {error.strerror}") from None
