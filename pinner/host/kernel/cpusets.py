"""The cpusets that confine a process: folders of the cpuset controller, v1 or v2 (cgroups(7)).

libvirt makes a folder for each vCPU and iothread, and one for the emulator, below the guest's. With systemd the guest's
folder is a scope, and a folder ``libvirt`` may lie between.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import files
from pinner.host.kernel.kernel import Mount
from pinner.model.kinds import TargetKind

CPUS = "cpuset.cpus"
PARTITION = "cpuset.cpus.partition"
UNITS = (".service", ".scope", ".slice")

_PART = re.compile(r"emulator|(vcpu|iothread)(\d{1,6})", re.ASCII)
_WITHIN_GUEST = ("emulator", "libvirt")
_KINDS: dict[str, TargetKind] = {"vcpu": "vcpu", "iothread": "iothread"}


class Part(NamedTuple):
    kind: TargetKind
    part: int | None


def path_of(root: Path, tid: int) -> str:
    """Below the controller's mount; ``/``: not confined. Raises OSError where the thread has ended."""
    found = parse_rows(files.read(f"{root}/proc/{tid}/cgroup"))
    unified = next((path for controllers, path in found if controllers == ""), "/")
    return next((path for controllers, path in found if "cpuset" in controllers.split(",")), unified)


def parse_rows(cgroup: bytes) -> list[tuple[str, str]]:
    """One row a hierarchy: controllers with commas (empty: v2), and path."""
    found = (line.split(":", 2) for line in files.decode(cgroup).splitlines())
    return [(row[1], row[2]) for row in found if len(row) == 3]


def with_parents(mount: Mount, path: str) -> Iterator[Path]:
    """Innermost first, without the mount itself."""
    folder = mount.folder / path.lstrip("/")
    while folder != mount.folder:
        yield folder
        folder = folder.parent


def folders_of(root: Path, mount: Mount, tid: int) -> tuple[Path, ...]:
    """Innermost first; none where the thread has ended, or without a controller."""
    if mount.version == "none":
        return ()
    try:
        return tuple(with_parents(mount, path_of(root, tid)))
    except OSError:
        return ()


def of_guest(folder: Path) -> Path:
    """``folder`` is that of QEMU's main thread."""
    while folder.name in _WITHIN_GUEST:
        folder = folder.parent
    return folder


def parts(folder: Path) -> Iterator[tuple[Path, Part | None]]:
    """A guest's folder and all below it, each with the part that it confines."""
    for below, _, _ in os.walk(folder):
        yield Path(below), part_of(Path(below).name)


def part_of(name: str) -> Part | None:
    found = _PART.fullmatch(name)
    if found is None:
        return None
    return Part(_KINDS[found[1]], int(found[2])) if found[1] else Part("emulator", None)
