"""pinner's wheel, built from the files of the working tree."""

import shutil
import subprocess
import sys
from pathlib import Path

_PROJECT = Path(__file__).parents[3]
_SOURCES = ("api", "etc", "migrations", "pinner", "LICENSE", "README.md", "pyproject.toml", "setup.cfg")


def sources(folder: Path) -> Path:
    """A copy of what the wheel is built from; setuptools leaves files of its own there."""
    copy = folder / "sources"
    for name in _SOURCES:
        source = _PROJECT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    return copy


def build(source: Path, kind: str) -> Path:
    """The wheel or sdist that setuptools builds from a source folder."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, text=True)
    return source / "dist" / done.stdout.splitlines()[-1]


def wheel(folder: Path) -> Path:
    """The wheel of the working tree."""
    return build(sources(folder), "wheel")
