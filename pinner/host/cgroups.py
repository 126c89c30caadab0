"""Cgroup v2 partitions of systemd's units, and the CPUs of unbound kernel work: their states read and set.

Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst (cpuset.cpus.partition) and core-api/workqueue.rst, and
systemd.resource-control(5). systemd owns the units' cpuset.cpus, so pinner sets them through systemd (AllowedCPUs=).
systemd preserves them over a daemon-reload. It does not know cpuset.cpus.partition, so pinner writes that file.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from pinner.host import files
from pinner.host.cpusets import CPUS, PARTITION, UNITS, path_of
from pinner.host.kernel import UNBOUND, cpuset_mount
from pinner.model.change import PartitionKind, PartitionState
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid, NotPermitted
from pinner.model.guest import Cgroup

_SYSTEMD_SECONDS = 30

POSSIBLE = "sys/devices/system/cpu/possible"
"""Every CPU that this boot can have."""

_KINDS: dict[str, PartitionKind] = {kind: kind for kind in get_args(PartitionKind)}
_PARTITION = re.compile(r"(?P<kind>[a-z]+)(?: (?P<invalid>invalid)(?: \((?P<why>.*)\))?)?")
"""The content of cpuset.cpus.partition: ``isolated``, or ``isolated invalid (why)``; older kernels give no reason."""


def units_of(root: Path, pid: int) -> tuple[Cgroup, ...]:
    """The units that contain a process, outermost first; none without the cpuset controller of cgroup v2."""
    mount, possible = cpuset_mount(root), files.cpu_list(root / POSSIBLE)
    if mount.version != "v2":
        return ()
    try:
        units = _units(path_of(root, pid).lstrip("/"))
        return tuple(Cgroup(unit, partition(mount.folder / unit, possible)) for unit in units)
    except (OSError, Gone, Invalid):
        return ()


def partition(folder: Path, possible: CpuSet | None) -> PartitionState:
    """The partition state of a cgroup, from the kernel's files.

    All ``possible`` CPUs count as no limit, because the kernel refuses to make the list empty again while the cgroup
    contains threads (ENOSPC). Raises Gone where there is no such cgroup, Invalid for a kind of partition that is not
    known.
    """
    text, cpus = files.text(folder / PARTITION), files.cpu_list(folder / CPUS)
    if text is None or cpus is None:
        raise Gone(f"cgroup {folder.name}")
    found = _PARTITION.fullmatch(text)
    if found is None or found["kind"] not in _KINDS:
        raise Invalid(PARTITION, text, "member, root or isolated")
    invalid = (found["why"] or "the kernel gives no reason") if found["invalid"] else ""
    return PartitionState(_KINDS[found["kind"]], CpuSet() if cpus == possible else cpus, invalid)


def set_partition(root: Path, path: str, state: PartitionState, allow: Callable[[str, CpuSet], None]) -> None:
    """Give the cgroup at ``path`` below the mount a state, and read it back.

    ``allow`` has systemd give a unit its CPUs. Raises Gone, NotPermitted, ApplyFailed, Invalid.
    """
    folder, possible = cpuset_mount(root).folder / path, files.cpu_list(root / POSSIBLE)
    partition(folder, possible)
    if state.kind == "member":
        _write(folder / PARTITION, state.kind)
    allow(folder.name, state.cpus)
    if files.cpu_list(folder / CPUS) != state.cpus:
        # systemd does not write the file where a unit's list of CPUs is empty.
        _write(folder / CPUS, str(state.cpus or possible))
    if state.kind != "member":
        _write(folder / PARTITION, state.kind)
    if (now := partition(folder, possible)) != state:
        raise ApplyFailed(f"partition {path}", f"asked for '{state}', the kernel says '{now}'", granted=str(now))


def unbound(root: Path) -> CpuSet:
    """The CPUs of unbound work. Raises Gone if the kernel does not report them."""
    cpus = files.cpu_mask(root / UNBOUND)
    if cpus is None:
        raise Gone("the kernel's work queues")
    return cpus


def set_unbound(root: Path, cpus: CpuSet) -> None:
    """Give unbound work these CPUs and read them back. Raises Gone, NotPermitted, ApplyFailed."""
    _write(root / UNBOUND, cpus.mask())
    if (now := unbound(root)) != cpus:
        raise ApplyFailed("workqueue", f"asked for CPUs {cpus}, the kernel says {now}", granted=str(now))


def allow(unit: str, cpus: CpuSet) -> None:
    """Have systemd give a unit these CPUs (none: no limit) until the next boot. Raises ApplyFailed."""
    command = ["systemctl", "set-property", "--runtime", "--", unit, f"AllowedCPUs={cpus}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SYSTEMD_SECONDS)
    except subprocess.CalledProcessError as error:
        raise ApplyFailed(f"unit {unit}", f"systemd refuses AllowedCPUs={cpus}: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ApplyFailed(f"unit {unit}", f"systemd does not answer: {error}") from None


def _units(path: str) -> Iterator[str]:
    """The path of each unit that contains the cgroup at ``path``; folders below a unit (libvirt's vcpu0) are the unit's
    own."""
    parts = path.split("/")
    for number, name in enumerate(parts, start=1):
        if not name.endswith(UNITS):
            return
        yield "/".join(parts[:number])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except FileNotFoundError:
        raise Gone(f"cgroup {path.parent.name}") from None
    except PermissionError:
        raise NotPermitted(f"{path.parent.name} {path.name}", "writing it needs root") from None
    except OSError as error:
        raise ApplyFailed(path.parent.name, f"the kernel refuses {text.strip()!r} for {path.name}: {error}") from None
