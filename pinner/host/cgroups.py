"""Cgroup v2 partitions of systemd's units, and the CPUs of unbound kernel work: their states read and set.

Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst (cpuset.cpus.partition) and core-api/workqueue.rst, and
systemd.resource-control(5). systemd owns the units' cpuset.cpus, so it is told of the CPUs (AllowedCPUs=) and keeps
them over a daemon-reload; cpuset.cpus.partition it does not know, and pinner writes it.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from pinner.host import files
from pinner.host.cpusets import CPUS, PARTITION, UNITS, path_of
from pinner.host.kernel import UNBOUND, cpuset_mount
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, NotPermitted
from pinner.model.guest import Cgroup

_SYSTEMD_SECONDS = 30

POSSIBLE = "sys/devices/system/cpu/possible"
"""Every CPU that this boot can have."""


def units_of(root: Path, pid: int) -> tuple[Cgroup, ...]:
    """The units that hold a process, outermost first; none without the cpuset controller of cgroup v2."""
    mount, possible = cpuset_mount(root), files.cpu_list(root / POSSIBLE)
    if mount.version != "v2":
        return ()
    try:
        units = _units(path_of(root, pid).lstrip("/"))
        return tuple(Cgroup(unit, partition(mount.folder / unit, possible)) for unit in units)
    except (OSError, Gone):
        return ()


def partition(folder: Path, possible: CpuSet | None) -> str:
    """A cgroup's kind (member, root, isolated; with the kernel's reason where it is invalid) and its own CPUs.

    All ``possible`` CPUs are no limit, as none are: a cgroup that holds threads cannot be given back its empty list
    (ENOSPC). Raises Gone where there is no such cgroup.
    """
    kind, cpus = files.text(folder / PARTITION), files.cpu_list(folder / CPUS)
    if kind is None or cpus is None:
        raise Gone(f"cgroup {folder.name}")
    return f"{kind} {cpus if cpus != possible else ''}".strip()


def set_partition(root: Path, path: str, state: str, allow: Callable[[str, CpuSet], None]) -> None:
    """Give the cgroup at ``path`` below the mount a state, and read it back.

    ``allow`` tells systemd of a unit's CPUs. Raises Gone, NotPermitted, ApplyFailed.
    """
    folder, possible = cpuset_mount(root).folder / path, files.cpu_list(root / POSSIBLE)
    partition(folder, possible)
    kind, _, listed = state.partition(" ")
    cpus = CpuSet.parse(listed)
    if kind == "member":
        _write(folder / PARTITION, kind)
    allow(folder.name, cpus)
    if files.cpu_list(folder / CPUS) != cpus:
        # systemd leaves the file alone when it is told of no CPU.
        _write(folder / CPUS, str(cpus or possible))
    if kind != "member":
        _write(folder / PARTITION, kind)
    if (now := partition(folder, possible)) != state:
        raise ApplyFailed(f"partition {path}", f"asked for {state!r}, the kernel says {now!r}", granted=now)


def unbound(root: Path) -> str:
    """The CPUs of unbound work as a list. Raises Gone where the kernel does not tell."""
    cpus = files.cpu_mask(root / UNBOUND)
    if cpus is None:
        raise Gone("the kernel's work queues")
    return str(cpus)


def set_unbound(root: Path, cpus: str) -> None:
    """Give unbound work these CPUs and read them back. Raises Gone, NotPermitted, ApplyFailed."""
    _write(root / UNBOUND, CpuSet.parse(cpus).mask())
    if (now := unbound(root)) != cpus:
        raise ApplyFailed("workqueue", f"asked for CPUs {cpus}, the kernel says {now}", granted=now)


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
    """The path of each unit on the way; what a unit keeps below itself (libvirt's vcpu0) is its own affair."""
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
