"""The CPUs that the kernel allows processes and its own work: cpusets, v1 or v2, partitions of systemd's units, work
queues.

Sources: cgroups(7), admin-guide/cgroup-v2.rst (cpuset.cpus.partition), core-api/workqueue.rst,
systemd.resource-control(5). systemd owns cpuset.cpus of its units, so pinner sets them by AllowedCPUs=, which survives
a daemon-reload. systemd does not know cpuset.cpus.partition, so pinner writes that file.

libvirt makes a folder for each vCPU and iothread, and one for the emulator, below the guest's. With systemd the guest's
folder is a scope, and a folder ``libvirt`` may lie between.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

from pinner.host.kernel import beneath, files
from pinner.host.kernel.kernel import UNBOUND, Mount, cpuset_mount
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid, NotPermitted, PinnerError
from pinner.model.guest.guest import Cgroup
from pinner.model.kinds import PartitionKind, PartitionState, TargetKind

_SYSTEMD_SECONDS = 30

POSSIBLE = "sys/devices/system/cpu/possible"

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,248}\.(?:service|scope|slice)", re.ASCII)
"""A unit with a cgroup (systemd.unit(5))."""

_KINDS: dict[str, PartitionKind] = {kind: kind for kind in get_args(PartitionKind)}
_PARTITION = re.compile(r"(?P<kind>[a-z]+)(?: (?P<invalid>invalid)(?: \((?P<why>.*)\))?)?")
"""``isolated``, or ``isolated invalid (why)``; older kernels give no reason."""


CPUS = "cpuset.cpus"
PARTITION = "cpuset.cpus.partition"
UNITS = (".service", ".scope", ".slice")

_PART = re.compile(r"emulator|(vcpu|iothread)(\d{1,6})", re.ASCII)
_WITHIN_GUEST = ("emulator", "libvirt")
_PART_KINDS: dict[str, TargetKind] = {"vcpu": "vcpu", "iothread": "iothread"}


class Part(NamedTuple):
    kind: TargetKind
    part: int | None


def path_of(root: Path, tid: int) -> str:
    """The process's cpuset below the controller's mount; ``/``: not confined. Raises OSError where the thread has
    ended."""
    rows = parse_rows(files.read(f"{root}/proc/{tid}/cgroup"))
    unified = next((path for controllers, path in rows if controllers == ""), "/")
    return next((path for controllers, path in rows if "cpuset" in controllers.split(",")), unified)


def parse_rows(cgroup: bytes) -> list[tuple[str, str]]:
    """One row a hierarchy: controllers with commas (empty: v2), and path."""
    rows = (line.split(":", 2) for line in files.decode(cgroup).splitlines())
    return [(row[1], row[2]) for row in rows if len(row) == 3]


def with_parents(mount: Mount, path: str) -> Iterator[Path]:
    """The folder of a cpuset and those above it, innermost first, without the mount itself."""
    folder = mount.folder / path.lstrip("/")
    while folder != mount.folder:
        yield folder
        folder = folder.parent


def folders_of(root: Path, mount: Mount, tid: int) -> tuple[Path, ...]:
    """The cpusets that confine a thread, innermost first; none where it has ended, or without a controller."""
    if mount.version == "none":
        return ()
    try:
        return tuple(with_parents(mount, path_of(root, tid)))
    except OSError:
        return ()


def of_guest(folder: Path) -> Path:
    """The guest's folder; ``folder`` is that of QEMU's main thread."""
    while folder.name in _WITHIN_GUEST:
        folder = folder.parent
    return folder


def parts(folder: Path) -> Iterator[tuple[Path, Part | None]]:
    """A guest's folder and all below it, each with the part that it confines."""
    for below, _, _ in os.walk(folder):
        yield Path(below), part_of(Path(below).name)


def part_of(name: str) -> Part | None:
    match = _PART.fullmatch(name)
    if match is None:
        return None
    return Part(_PART_KINDS[match[1]], int(match[2])) if match[1] else Part("emulator", None)


class UnitReader:
    """Looks for the controller's mount once: a host has many mounts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mount, self._possible = cpuset_mount(root), files.cpu_list(root / POSSIBLE)

    def units_of(self, pid: int) -> tuple[Cgroup, ...]:
        """The units that a process is in, outermost first; none without the cpuset controller of cgroup v2."""
        if self._mount.version != "v2":
            return ()
        try:
            units = _units(path_of(self._root, pid).lstrip("/"))
            return tuple(Cgroup(unit, _partition(self._mount, unit, self._possible)) for unit in units)
        except (OSError, Gone, Invalid):
            return ()


def unit_folders(root: Path, pid: int) -> tuple[Path, ...]:
    """The folders of the units that a process is in, outermost first; none without the cpuset controller of v2."""
    mount = cpuset_mount(root)
    if mount.version != "v2":
        return ()
    try:
        return tuple(mount.folder / unit for unit in _units(path_of(root, pid).lstrip("/")))
    except (OSError, Gone):
        return ()


def partition(root: Path, path: str) -> PartitionState:
    """``path`` is below the mount. Raises Gone; Invalid for a path that is no unit's, and an unknown kind.

    All possible CPUs count as no limit: the kernel refuses to empty the list again while the cgroup has threads
    (ENOSPC).
    """
    return _partition(cpuset_mount(root), path, files.cpu_list(root / POSSIBLE))


def set_partition(root: Path, path: str, state: PartitionState, allow: Callable[[str, CpuSet], None]) -> None:
    """Set and read back. ``allow`` has systemd give a unit its CPUs. Raises Gone, NotPermitted, ApplyFailed,
    Invalid."""
    mount, possible = cpuset_mount(root), files.cpu_list(root / POSSIBLE)
    _partition(mount, path, possible)
    with _opened(mount, path) as folder:
        if state.kind == "member":
            _write(folder, PARTITION, state.kind, path)
        allow(path.rpartition("/")[2], state.cpus)
        if _cpu_list(folder) != state.cpus:
            # systemd does not write the file where a unit's list of CPUs is empty.
            _write(folder, CPUS, str(state.cpus or possible), path)
        if state.kind != "member":
            _write(folder, PARTITION, state.kind, path)
        now = _state(folder, path, possible)
    if now != state:
        raise ApplyFailed(f"partition {path}", f"asked for '{state}', the kernel says '{now}'", granted=str(now))


def unbound(root: Path) -> CpuSet:
    """Raises Gone if the kernel does not report them."""
    cpus = files.cpu_mask(root / UNBOUND)
    if cpus is None:
        raise Gone("the kernel's work queues")
    return cpus


def set_unbound(root: Path, cpus: CpuSet) -> None:
    """Set and read back. Raises Gone, NotPermitted, ApplyFailed."""
    try:
        (root / UNBOUND).write_text(cpus.mask())
    except OSError as error:
        raise _refused("the kernel's work queues", error) from None
    if (now := unbound(root)) != cpus:
        raise ApplyFailed("workqueue", f"asked for CPUs {cpus}, the kernel says {now}", granted=str(now))


def allow(unit: str, cpus: CpuSet) -> None:
    """Have systemd give a unit these CPUs (none: no limit) until the next boot. Raises ApplyFailed."""
    set_property(unit, f"AllowedCPUs={cpus}")


def set_property(unit: str, assignment: str) -> None:
    """NAME=VALUE, until the next boot. Raises ApplyFailed."""
    command = ["systemctl", "set-property", "--runtime", "--", unit, assignment]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SYSTEMD_SECONDS)
    except subprocess.CalledProcessError as error:
        raise ApplyFailed(f"unit {unit}", f"systemd refuses {assignment}: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ApplyFailed(f"unit {unit}", f"systemd does not answer: {error}") from None


def _units(path: str) -> Iterator[str]:
    """Folders below a unit (libvirt's vcpu0) are the unit's own."""
    parts = path.split("/")
    for number, name in enumerate(parts, start=1):
        if not name.endswith(UNITS):
            return
        yield "/".join(parts[:number])


@contextmanager
def _opened(mount: Mount, path: str) -> Iterator[int]:
    beneath.require_plain(path)
    if not all(_UNIT.fullmatch(name) for name in path.split("/")):
        raise Invalid("cgroup", path[:80], "the path of a systemd unit's cgroup below the mount of the controller")
    try:
        opened = beneath.folder(mount.folder, path)
        with opened as folder:
            yield folder
    except OSError:
        raise Gone(f"cgroup {path}") from None


def _partition(mount: Mount, path: str, possible: CpuSet | None) -> PartitionState:
    with _opened(mount, path) as folder:
        return _state(folder, path, possible)


def _state(folder: int, path: str, possible: CpuSet | None) -> PartitionState:
    text, cpus = beneath.read(folder, PARTITION), _cpu_list(folder)
    if text is None or cpus is None:
        raise Gone(f"cgroup {path}")
    found = _PARTITION.fullmatch(text)
    if found is None or found["kind"] not in _KINDS:
        raise Invalid(PARTITION, text, "member, root or isolated")
    invalid = (found["why"] or "the kernel gives no reason") if found["invalid"] else ""
    return PartitionState(_KINDS[found["kind"]], CpuSet() if cpus == possible else cpus, invalid)


def _cpu_list(folder: int) -> CpuSet | None:
    text = beneath.read(folder, CPUS)
    try:
        return None if text is None else CpuSet.parse(text)
    except Invalid:
        return None


def _write(folder: int, name: str, text: str, path: str) -> None:
    try:
        beneath.write(folder, name, text)
    except OSError as error:
        raise _refused(f"{path} {name}", error) from None


def _refused(what: str, error: OSError) -> PinnerError:
    if isinstance(error, FileNotFoundError):
        return Gone(what)
    if isinstance(error, PermissionError):
        return NotPermitted(what, "writing it needs root")
    return ApplyFailed(what, f"the kernel refuses the value: {error.strerror}")
