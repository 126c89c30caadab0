"""The paths of pinner's hook script among libvirt's hooks, who owns the files there, and which folders were made: a
list beside the files names those, so that a removal leaves none."""

import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pinner.hostsetup import steps
from pinner.hostsetup.steps import Step

FOLDERS_MARK = "# pinner's list of folders"
_HEAD = f"""\
# Written by pinner nova install-hooks.
{FOLDERS_MARK} that it has made, and that remove-hooks removes if empty.
"""


def missing_folders(*files: Path) -> tuple[Path, ...]:
    """Each folder comes after its parent."""
    return tuple(sorted({folder for file in files for folder in file.parents if not folder.exists()}))


def folder_list(root: Path, folders: Collection[Path]) -> str:
    return _HEAD + "".join(f"{_host_path(root, folder)}\n" for folder in sorted(folders))


def listed_folders(root: Path, file: Path, files: Collection[Path]) -> tuple[Path, ...]:
    """Only folders on the way to one of ``files`` count: an installation makes no others."""
    names = (steps.content(file) or "").splitlines()
    possible = {folder for each in files for folder in each.parents if folder != root}
    return tuple(sorted(folder for folder in possible if _host_path(root, folder) in names))


def folder_removal(folders: Collection[Path], files: Collection[Path]) -> Iterator[Step]:
    """Folders with nothing but ``files``, children first."""
    for folder in sorted(folders, reverse=True):
        yield Step(f"remove {folder}", partial(_is_kept, folder, {*files, *folders}), partial(_remove_empty, folder))


def _host_path(root: Path, folder: Path) -> str:
    return f"/{folder.relative_to(root)}" if folder.is_relative_to(root) else str(folder)


def _is_kept(folder: Path, own: Collection[Path]) -> bool:
    return folder.is_symlink() or not folder.is_dir() or any(path not in own for path in folder.iterdir())


def _remove_empty(folder: Path) -> None:
    # Another program may have written a file into the folder just now.
    with suppress(OSError):
        folder.rmdir()


_MARKS = (
    "# pinner's hook script for libvirt",
    "# pinner's filter for libvirt",
    "# libvirt hook script for pinner",
    FOLDERS_MARK,
)
"""The begin of the second line of pinner's files, the third one in copies made by hand."""
_START = 4096
"""Bytes of a file that contain the mark."""
SETTINGS = """\
# Settings of pinner's hook script for libvirt, written by pinner nova install-hooks.
python = {python}
"""
_SONAME = re.compile(r"libvirt\.so\.0\.(\d+)\.\d+")
FIRST_WITH_FOLDER = 6005
"""libvirt 6.5.0 was the first that runs the scripts in qemu.d. Its library's name has 6005 in it."""

HOSTS_HOOKS = "etc/libvirt/hooks"
_SNAP, SNAPS_HOOKS = "snap/openstack-hypervisor/current", "var/snap/openstack-hypervisor/common/etc/libvirt/hooks"
DAEMONS = ("usr/sbin/libvirtd", "usr/sbin/virtqemud")
"""The library alone tells nothing: pinner needs it, too."""


def _own_python() -> Path:
    """A system's Python, such as Debian's, may have only the name python3."""
    usual = Path(sys.prefix, "bin/python")
    return usual if usual.exists() else Path(sys.executable)


@dataclass(frozen=True)
class HookPaths:
    root: Path = Path("/")
    folder: Path | None = None
    """Another folder than the usual one below ``root``."""
    python: Path = field(default_factory=_own_python)

    @property
    def hooks(self) -> Path:
        return self.folder or self.root / (SNAPS_HOOKS if self.has_snap else HOSTS_HOOKS)

    @property
    def has_snap(self) -> bool:
        """Whether the snap openstack-hypervisor has a libvirt of its own."""
        return (self.root / SNAPS_HOOKS).parent.is_dir()

    @property
    def is_snaps(self) -> bool:
        return self.hooks == self.root / SNAPS_HOOKS

    @property
    def alone(self) -> Path:
        """The only script for QEMU that a libvirt before 6.5.0 runs."""
        return self.hooks / "qemu"

    @property
    def beside(self) -> Path:
        return self.hooks / "qemu.d/pinner"

    @property
    def filter(self) -> Path:
        """In qemu.d libvirt would run it as a script of its own."""
        return self.hooks / "pinner-strip-pins"

    @property
    def folders_file(self) -> Path:
        """The list of the folders that ``install_hooks`` has made."""
        return self.hooks / "pinner-folders"

    @property
    def settings(self) -> Path:
        return self.root / "etc/pinner/hook.conf"

    @property
    def own_settings(self) -> str:
        return SETTINGS.format(python=self.python)

    @property
    def newest(self) -> int:
        """The newest of libvirt's libraries, as its name has it; 0: none."""
        libraries = (self.root / _SNAP if self.is_snaps else self.root).glob("usr/lib*/**/libvirt.so.0.*")
        return max((int(match[1]) for library in libraries if (match := _SONAME.fullmatch(library.name))), default=0)

    def script(self) -> Path:
        if self.newest >= FIRST_WITH_FOLDER:
            return self.beside
        # Other programs have such a folder of their own. A libvirt in a container may be newer than the library here.
        return self.beside if self.beside.parent.is_dir() and not (self.newest and is_free(self.alone)) else self.alone


def is_free(path: Path) -> bool:
    return not os.path.lexists(path) or is_pinners(path)


def is_pinners(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        _, _, rest = file.read(_START).partition(b"\n")
    return rest.startswith(tuple(mark.encode() for mark in _MARKS))
