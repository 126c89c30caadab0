"""The partitions of systemd's units, in cgroup v2 (admin-guide/cgroup-v2.rst). systemd owns its units' cpuset.cpus, so
pinner sets them by AllowedCPUs= (systemd.resource-control(5)), which survives a daemon-reload; it does not know
cpuset.cpus.partition, which pinner writes."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import get_args

from pinner.host.kernel import beneath, files
from pinner.host.kernel.cgroups import (
    CPUS,
    EFFECTIVE,
    PARTITION,
    below,
    limits,
    path_of,
    set_property,
    unit_paths,
    without_part,
)
from pinner.host.kernel.kernel import Mount, cpuset_mount
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import ApplyFailed, Gone, Invalid, NotPermitted, PinnerError
from pinner.model.guest.guest import Cgroup
from pinner.model.machine.process import CpuLimit, host_unit
from pinner.model.states import PartitionKind, PartitionState

ONLINE = "sys/devices/system/cpu/online"
POSSIBLE = "sys/devices/system/cpu/possible"

_KINDS: dict[str, PartitionKind] = {kind: kind for kind in get_args(PartitionKind)}
_PARTITION = re.compile(r"(?P<kind>[a-z]+)(?: (?P<invalid>invalid)(?: \((?P<why>.*)\))?)?")
"""``isolated``, or ``isolated invalid (why)``; older kernels give no reason."""


def partitioned(root: Path) -> CpuSet:
    """The CPUs in valid v2 partitions of type ``isolated``."""
    mount = cpuset_mount(root)
    if mount.version != "v2":
        return CpuSet()
    # The kernel's own list (since Linux 6.7) also has remote partitions, whose parents are no partitions.
    known = files.cpu_list(mount.folder / "cpuset.cpus.isolated")
    if known is not None:
        return known
    state = cache(lambda path: files.text(path / PARTITION))
    found = below(mount.folder, lambda path: state(path) in ("root", "isolated"))
    isolated = (path for path in found if state(path) == "isolated")
    return union(files.cpu_list(path / EFFECTIVE["v2"]) or CpuSet() for path in isolated)


class UnitReader:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._mount, self._possible = cpuset_mount(root), files.cpu_list(root / POSSIBLE)
        self._limits = cache(partial(limits, self._mount, online=files.cpu_list(root / ONLINE) or CpuSet()))

    def limits_of(self, pid: int) -> tuple[CpuLimit, ...]:
        """None where it has ended."""
        try:
            return self._limits(without_part(path_of(self._root, pid)))
        except OSError:
            return ()

    def units_of(self, pid: int) -> tuple[Cgroup, ...]:
        """The units that a process is in, outermost first; none without the cpuset controller of cgroup v2."""
        if self._mount.version != "v2":
            return ()
        try:
            units = unit_paths(path_of(self._root, pid).lstrip("/"))
            return tuple(Cgroup(unit, _partition(self._mount, unit, self._possible)) for unit in units)
        except (OSError, Gone, Invalid):
            return ()


def partition(root: Path, path: str) -> PartitionState:
    """Raises Gone; Invalid for a path that is no unit's, and an unknown kind. All possible CPUs count as no limit: the
    kernel refuses to empty the list while the cgroup has threads (ENOSPC)."""
    return _partition(cpuset_mount(root), path, files.cpu_list(root / POSSIBLE))


def set_partition(root: Path, path: str, state: PartitionState, allow: Callable[[str, CpuSet], None]) -> None:
    """Set, and read back. ``allow`` has systemd give a unit CPUs. Raises Gone, NotPermitted, ApplyFailed, Invalid."""
    mount, possible = cpuset_mount(root), files.cpu_list(root / POSSIBLE)
    _partition(mount, path, possible)
    with _opened(mount, path) as folder:
        if state.kind == "member":
            _write(folder, PARTITION, state.kind, path)
        allow(host_unit(path), state.cpus)
        if _cpu_list(folder) != state.cpus:
            # systemd does not write the file where a unit's list of CPUs is empty.
            _write(folder, CPUS, str(state.cpus or possible), path)
        if state.kind != "member":
            _write(folder, PARTITION, state.kind, path)
        now = _state(folder, path, possible)
    if now != state:
        raise ApplyFailed(f"partition {path}", f"asked for '{state}', the kernel says '{now}'", granted=str(now))


def allow(unit: str, cpus: CpuSet) -> None:
    """No CPUs: no limit. The limit lasts until the next boot. Raises ApplyFailed."""
    set_property(unit, f"AllowedCPUs={cpus}")


@contextmanager
def _opened(mount: Mount, path: str) -> Iterator[int]:
    beneath.require_plain(path)
    if not host_unit(path):
        expected = "the path of a cgroup of the host's systemd, a unit in slices, below the mount of the controller"
        raise Invalid("cgroup", path[:80], expected)
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
    match = _PARTITION.fullmatch(text)
    if match is None or match["kind"] not in _KINDS:
        raise Invalid(PARTITION, text, "member, root or isolated")
    invalid = (match["why"] or "the kernel gives no reason") if match["invalid"] else ""
    return PartitionState(_KINDS[match["kind"]], CpuSet() if cpus == possible else cpus, invalid)


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
