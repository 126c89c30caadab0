"""The cgroups (v1 or v2) of processes: cpusets that confine threads, and systemd's units (cgroups(7)). libvirt makes
one for each vCPU, iothread and emulator below the guest's folder (with systemd a scope), or its folder ``libvirt``."""

import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import files
from pinner.host.kernel.kernel import Mount
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import ROOT, UNITS, CpuLimit, cgroup_with_parents, host_unit

_SYSTEMD_SECONDS = 30
MAX_CGROUPS = 4096
"""That are looked at below one: containers make as many as they like."""

CPUS = "cpuset.cpus"
EFFECTIVE = {"v1": "cpuset.effective_cpus", "v2": "cpuset.cpus.effective"}
PARTITION = "cpuset.cpus.partition"
_DEFAULT_WEIGHT, _DEFAULT_SHARES = 100, 1024
"""cpu.weight (v2) and cpu.shares (v1) of a cgroup that nobody has given one."""

_PART = re.compile(r"emulator|(vcpu|iothread)(\d{1,6})", re.ASCII)
_WITHIN_GUEST = ("emulator", "libvirt")
_PART_KINDS: dict[str, TargetKind] = {"vcpu": "vcpu", "iothread": "iothread"}


class Part(NamedTuple):
    kind: TargetKind
    part: int | None


def path_of(root: Path, tid: int, controller: str = "cpuset") -> str:
    """The thread's cgroup below the controller's mount; ``/``: not confined. Raises OSError where it has ended."""
    rows = parse_rows(files.read(f"{root}/proc/{tid}/cgroup"))
    unified = next((path for controllers, path in rows if controllers == ""), "/")
    return next((path for controllers, path in rows if controller in controllers.split(",")), unified)


def parse_rows(cgroup: bytes) -> list[tuple[str, str]]:
    """One row a hierarchy: controllers with commas (empty: v2), and path."""
    rows = (line.split(":", 2) for line in files.decode(cgroup).splitlines())
    return [(row[1], row[2]) for row in rows if len(row) == 3]


def with_parents(mount: Mount, path: str) -> Iterator[Path]:
    """The folder of a cpuset and those above it, innermost first, without the mount itself; none outside of it."""
    return (mount.folder / each for each in cgroup_with_parents(path.strip("/")))


def below(folder: Path, enters: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """Those of the upper levels first, at most MAX_CGROUPS; ``enters`` tells whether those below one are wanted."""
    waiting, left = deque([folder]), MAX_CGROUPS
    while waiting and left:
        found = files.folders(waiting.popleft(), left)
        left -= len(found)
        yield from found
        waiting.extend(filter(enters, found))


def folders_of(root: Path, mount: Mount, tid: int) -> tuple[Path, ...]:
    """The cpusets that confine a thread, innermost first; none where it has ended, or without a controller."""
    if mount.version == "none":
        return ()
    try:
        return tuple(with_parents(mount, path_of(root, tid)))
    except OSError:
        return ()


def without_part(path: str) -> str:
    """Without libvirt's cgroup of a part of a guest, whose CPUs a pin writes."""
    names = path.split("/")
    return "/".join(names[: next((number for number, name in enumerate(names) if part_of(name)), None)])


def limits(mount: Mount, path: str, online: CpuSet) -> tuple[CpuLimit, ...]:
    """This cgroup and those above it that leave out CPUs of the ones above, outermost first. A v2 partition ends what
    those above it leave out: it has CPUs that they lack. That of the process's own folder is no limit, but a setting
    that the guest's units show."""
    found: list[CpuLimit] = []
    allowed, own = online, of_guest(mount.folder / path.lstrip("/"))
    for folder in (mount.folder, *reversed(tuple(with_parents(mount, path)))) if mount.version != "none" else ():
        if not (cpus := files.cpu_list(folder / EFFECTIVE[mount.version])):
            continue  # a cgroup without the controller
        if files.text(folder / PARTITION) in ("root", "isolated"):
            found, allowed = [], cpus if folder == own else online
        if allowed - cpus:
            name = ROOT if folder == mount.folder else str(folder.relative_to(mount.folder))
            found.append(CpuLimit(name, cpus))
            allowed &= cpus
    return tuple(found)


def of_guest(folder: Path) -> Path:
    """The guest's folder; ``folder`` is that of QEMU's main thread."""
    while folder.name in _WITHIN_GUEST:
        folder = folder.parent
    return folder


def parts_of_guest(
    root: Path, mount: Mount, pid: int, controller: str = "cpuset"
) -> Iterator[tuple[Path, Part | None]]:
    """The guest's folder and those ``below`` it; ``pid`` is QEMU's. None where it has ended, without the controller,
    and in no cgroup below the mount (a private cgroup namespace shows paths that leave it)."""
    if mount.version == "none":
        return
    try:
        own = str(of_guest(Path(path_of(root, pid, controller))))
    except OSError:
        return
    folder = mount.folder / own.lstrip("/")
    if cgroup_with_parents(own) and folder.is_dir():
        for each in (folder, *below(folder)):
            yield each, part_of(each.name)


def part_of(name: str) -> Part | None:
    match = _PART.fullmatch(name)
    if match is None:
        return None
    return Part(_PART_KINDS[match[1]], int(match[2])) if match[1] else Part("emulator", None)


def cpu_weight(mount: Mount, path: str) -> int | None:
    """For v1 the weight that is like its cpu.shares."""
    if mount.version == "v1":
        shares = files.number(mount.folder / path / "cpu.shares")
        return None if shares is None else round(shares * _DEFAULT_WEIGHT / _DEFAULT_SHARES)
    return files.number(mount.folder / path / "cpu.weight") if mount.version == "v2" else None


def set_property(unit: str, assignment: str) -> None:
    """NAME=VALUE, until the next boot. Raises ApplyFailed."""
    command = ["systemctl", "set-property", "--runtime", "--", unit, assignment]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SYSTEMD_SECONDS)
    except subprocess.CalledProcessError as error:
        raise ApplyFailed(f"unit {unit}", f"systemd refuses {assignment}: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ApplyFailed(f"unit {unit}", f"systemd does not answer: {error}") from None


def unit_paths(path: str) -> Iterator[str]:
    """Units of the host's systemd, outermost first; folders below one (libvirt's vcpu0) are its own. None inside of a
    container, where another manager names units."""
    units = [each for each in reversed(cgroup_with_parents(path)) if each.endswith(UNITS)]
    return iter(units if all(map(host_unit, units)) else ())
