"""The cpusets that confine a process: folders of the cpuset controller, by whichever version of cgroups has it.

Source: cgroups(7), /proc/TID/cgroup. libvirt keeps a folder for each vCPU and iothread, and one for the emulator, below
the guest's own; with systemd that is a scope, perhaps with a folder ``libvirt`` between.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pinner.host import files
from pinner.host.kernel import Mount
from pinner.model.change import TargetKind

CPUS = "cpuset.cpus"
PARTITION = "cpuset.cpus.partition"
UNITS = (".service", ".scope", ".slice")
"""How systemd's units end that have a cgroup."""

_PART = re.compile(r"emulator|(vcpu|iothread)(\d{1,6})", re.ASCII)
_WITHIN_GUEST = ("emulator", "libvirt")
_KINDS: dict[str, TargetKind] = {"vcpu": "vcpu", "iothread": "iothread"}


class Part(NamedTuple):
    """The part of a guest that a folder is for."""

    kind: TargetKind
    part: int | None


def path_of(root: Path, tid: int) -> str:
    """The path of a thread's cpuset below the controller's mount, from its root: ``/`` where nothing confines it.

    Raises OSError where the thread has ended.
    """
    found = rows(files.read(f"{root}/proc/{tid}/cgroup"))
    unified = next((path for controllers, path in found if controllers == ""), "/")
    return next((path for controllers, path in found if "cpuset" in controllers.split(",")), unified)


def rows(cgroup: bytes) -> list[tuple[str, str]]:
    """A /proc/TID/cgroup file by hierarchy: its controllers, by commas (none: cgroup v2), and the path in it."""
    found = (line.split(":", 2) for line in files.decode(cgroup).splitlines())
    return [(row[1], row[2]) for row in found if len(row) == 3]


def above(mount: Mount, path: str) -> Iterator[Path]:
    """The folder at ``path`` and those above it, innermost first, without the controller's own."""
    folder = mount.folder / path.lstrip("/")
    while folder != mount.folder:
        yield folder
        folder = folder.parent


def around(root: Path, mount: Mount, tid: int) -> tuple[Path, ...]:
    """The folders that confine a thread, as ``above``; none where it has ended, and without the controller."""
    if mount.version == "none":
        return ()
    try:
        return tuple(above(mount, path_of(root, tid)))
    except OSError:
        return ()


def of_guest(folder: Path) -> Path:
    """The guest's own folder, given that of its QEMU's main thread."""
    while folder.name in _WITHIN_GUEST:
        folder = folder.parent
    return folder


def parts(folder: Path) -> Iterator[tuple[Path, Part | None]]:
    """A guest's folder and all below it, each with the guest's part that it is for."""
    for below, _, _ in os.walk(folder):
        yield Path(below), part_of(Path(below).name)


def part_of(name: str) -> Part | None:
    """The part of a guest that a folder of this name is for."""
    found = _PART.fullmatch(name)
    if found is None:
        return None
    return Part(_KINDS[found[1]], int(found[2])) if found[1] else Part("emulator", None)
