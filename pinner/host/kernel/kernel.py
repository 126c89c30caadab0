"""The kernel's settings: release, command line, and the mount of the cpuset controller of cgroups."""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from pinner.host.kernel.files import cpu_list, cpu_mask, names, text
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Kernel

PARTITIONS_SINCE = (5, 15)
"""cpuset.cpus.partition accepts ``isolated`` since this release (admin-guide/cgroup-v2.rst)."""


UNBOUND = "sys/devices/virtual/workqueue/cpumask"
"""The mask of unbound work queues (core-api/workqueue.rst)."""


class Mount(NamedTuple):
    version: Literal["v1", "v2", "none"]
    folder: Path


def boot_id(root: Path) -> str:
    """Empty where the kernel does not report it, and on a captured machine."""
    return (text(root / "proc/sys/kernel/random/boot_id") or "").strip()


def read_kernel(root: Path) -> Kernel:
    release = _release(root)
    cgroup = cpuset_mount(root).version
    partitions = cgroup == "v2" and _version(release) >= PARTITIONS_SINCE
    unbound = cpu_mask(root / UNBOUND) or CpuSet()
    return Kernel(release, text(root / "proc/cmdline") or "", cgroup, partitions, unbound)


def cpuset_mount(root: Path) -> Mount:
    return mount_of(root, "cpuset")


def mount_of(root: Path, controller: str) -> Mount:
    unified = None
    for line in (text(root / "proc/mounts") or "").splitlines():
        _, point, kind, options, *_ = [*line.split(" "), "", "", "", ""]
        folder = root / _unescaped(point).lstrip("/")
        if kind == controller or (kind == "cgroup" and controller in options.split(",")):
            return Mount("v1", folder)
        if kind == "cgroup2" and controller in (text(folder / "cgroup.controllers") or "").split():
            unified = folder
    return Mount("v2", unified) if unified else Mount("none", root)


def partitioned(root: Path) -> CpuSet:
    """The CPUs in valid v2 partitions of type ``isolated``."""
    mount = cpuset_mount(root)
    return _partitioned(mount.folder) if mount.version == "v2" else CpuSet()


def _partitioned(folder: Path) -> CpuSet:
    # The kernel's own list (since Linux 6.7) also has remote partitions, whose parents are no partitions.
    known = cpu_list(folder / "cpuset.cpus.isolated")
    if known is not None:
        return known
    cpus = CpuSet()
    for child in _children(folder):
        state = text(child / "cpuset.cpus.partition")
        if state == "isolated":
            cpus |= cpu_list(child / "cpuset.cpus.effective") or CpuSet()
        if state in ("root", "isolated"):
            cpus |= _partitioned(child)
    return cpus


def _children(folder: Path) -> list[Path]:
    return [path for name in names(folder) if (path := folder / name).is_dir()]


def _release(root: Path) -> str:
    release = text(root / "proc/sys/kernel/osrelease")
    if release is None:
        match = re.match(r"Linux version (\S+)", text(root / "proc/version") or "")
        release = match[1] if match else ""
    return release


def _version(release: str) -> tuple[int, int]:
    match = re.match(r"(\d{1,6})\.(\d{1,6})", release, re.ASCII)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _unescaped(point: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
