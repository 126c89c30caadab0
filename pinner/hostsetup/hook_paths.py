"""The paths of pinner's hook script among libvirt's hooks, and whose the files there are."""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pinner.hostsetup import made_folders

_MARKS = (
    "# pinner's hook script for libvirt",
    "# pinner's filter for libvirt",
    "# libvirt hook script for pinner",
    made_folders.MARK,
)
"""The begin of the second line of each file of pinner, the third one in copies that were made by hand."""
_START = 4096
"""Bytes of a file that contain the mark."""
SETTINGS = """\
# Settings of pinner's hook script for libvirt, written by pinner nova install-hooks.
python = {python}
"""
_SONAME = re.compile(r"libvirt\.so\.0\.(\d+)\.\d+")
FIRST_WITH_FOLDER = 6005
"""libvirt 6.5.0 was the first version that runs the scripts in qemu.d, too. Its library's name has 6005 in it."""

HOSTS_HOOKS = "etc/libvirt/hooks"
_SNAP, SNAPS_HOOKS = "snap/openstack-hypervisor/current", "var/snap/openstack-hypervisor/common/etc/libvirt/hooks"
DAEMONS = ("usr/sbin/libvirtd", "usr/sbin/virtqemud")
"""The libvirt of the host itself. Its library alone tells nothing: pinner needs it, too."""


def _own_python() -> Path:
    """The Python in which pinner is installed. A system's, such as Debian's, may have only the name python3."""
    usual = Path(sys.prefix, "bin/python")
    return usual if usual.exists() else Path(sys.executable)


@dataclass(frozen=True)
class HookPaths:
    """The paths of the hook script on the host whose file system begins at ``root``."""

    root: Path = Path("/")
    folder: Path | None = None
    """libvirt's folder of hook scripts, if it is not the usual one below ``root``."""
    python: Path = field(default_factory=_own_python)
    """The Python in which pinner is installed."""

    @property
    def hooks(self) -> Path:
        """libvirt's folder of hook scripts."""
        return self.folder or self.root / (SNAPS_HOOKS if self.has_snap else HOSTS_HOOKS)

    @property
    def has_snap(self) -> bool:
        """Whether the snap openstack-hypervisor has a libvirt of its own on this host."""
        return (self.root / SNAPS_HOOKS).parent.is_dir()

    @property
    def is_snaps(self) -> bool:
        """Whether the folder of hook scripts is that of the snap's libvirt."""
        return self.hooks == self.root / SNAPS_HOOKS

    @property
    def alone(self) -> Path:
        """The only script for QEMU that a libvirt before 6.5.0 runs."""
        return self.hooks / "qemu"

    @property
    def beside(self) -> Path:
        """The script of pinner beside those of others."""
        return self.hooks / "qemu.d/pinner"

    @property
    def filter(self) -> Path:
        """The filter that the script runs. It is not in qemu.d, where libvirt would run it as a script of its own."""
        return self.hooks / "pinner-strip-pins"

    @property
    def made(self) -> Path:
        """The list of the folders that ``install_hooks`` has made."""
        return self.hooks / "pinner-folders"

    @property
    def settings(self) -> Path:
        """The settings of the script."""
        return self.root / "etc/pinner/hook.conf"

    @property
    def own_settings(self) -> str:
        """The settings that name this installation."""
        return SETTINGS.format(python=self.python)

    @property
    def newest(self) -> int:
        """The version of the newest library of libvirt that is found, as its name has it; 0: none."""
        libraries = (self.root / _SNAP if self.is_snaps else self.root).glob("usr/lib*/**/libvirt.so.0.*")
        return max((int(found[1]) for library in libraries if (found := _SONAME.fullmatch(library.name))), default=0)

    def script(self) -> Path:
        """Where the script belongs: beside other scripts if libvirt supports that, else alone if that is free."""
        if self.newest >= FIRST_WITH_FOLDER:
            return self.beside
        # Other programs have such a folder of their own. A libvirt in a container may be newer than the library here.
        return self.beside if self.beside.parent.is_dir() and not (self.newest and is_free(self.alone)) else self.alone


def is_free(path: Path) -> bool:
    """Whether pinner may write the path: there is nothing, or a file of pinner."""
    return not os.path.lexists(path) or is_pinners(path)


def is_pinners(path: Path) -> bool:
    """Whether the path is a regular file with the mark of a file of pinner."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        _, _, rest = file.read(_START).partition(b"\n")
    return rest.startswith(tuple(mark.encode() for mark in _MARKS))
