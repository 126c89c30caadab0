"""Unpacked tar archives."""

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive below the folder; nothing of it gets out of the folder."""
    with tarfile.open(archive) as files:
        # Debian 12's Python 3.11.2 has no filters, and no argument for one.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(folder)
