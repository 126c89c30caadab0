"""Captured machines: the lab's hosts in tests/data, and the machines in the folder that PINNER_MACHINES names."""

import bz2
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

OWN = Path(__file__).parents[1] / "data/machines"
_FOLDERS = [OWN, *(Path(folder).resolve() for folder in [os.environ.get("PINNER_MACHINES")] if folder)]
ARCHIVES = {folder: sorted(folder.glob("*.tar.bz2")) for folder in _FOLDERS}
"""The archives in each folder."""
NAMES = {path.name.removesuffix(".tar.bz2"): path for paths in ARCHIVES.values() for path in paths}
"""The archive of each machine by its name."""
_LARGE = 75_000
"""Bytes of an archive. A test of such a machine takes seconds of CPU time."""
CASES = [
    pytest.param(name, marks=pytest.mark.slow("large captured machines") if path.stat().st_size > _LARGE else ())
    for name, path in NAMES.items()
]
"""The name of each machine, as parameters of a test or fixture."""
EACH = pytest.mark.parametrize("name", CASES)
"""A test runs for each machine."""

_UNPACKED = TemporaryDirectory(prefix="pinner-machines-", ignore_cleanup_errors=True)


@cache
def root_of(name: str) -> Path:
    """The root of a machine, which tests only read. It is unpacked once: a large one takes seconds."""
    return unpack(name, Path(_UNPACKED.name) / name)


def unpack(name: str, folder: Path) -> Path:
    """Unpack a machine below the folder. Returns the machine's root."""
    folder.mkdir(parents=True, exist_ok=True)
    # GNU tar takes half of the CPU time of tarfile; it writes nothing outside of the folder either.
    content = bz2.decompress(NAMES[name].read_bytes())
    subprocess.run(["tar", "--extract", "--no-same-owner", "--directory", folder], input=content, check=True)
    return next(path.parent for path in folder.glob("*/sys"))
