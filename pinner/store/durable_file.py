"""Writes a compressed file that is complete and on disk before it has its name."""

import gzip
import os
from collections.abc import Iterable
from pathlib import Path

from pinner.model.errors import StoreUnavailable


def write_durably(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each with its line end, to a file (gzip) that only this user may read.

    The folder is created if it is missing. Raises StoreUnavailable where the file cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with part.open("wb") as raw:
            os.fchmod(raw.fileno(), 0o600)
            with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
                for line in lines:
                    packed.write(line.encode())
            raw.flush()
            os.fsync(raw.fileno())
        part.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from None
