"""The kernel's settings: release, command line, and the mount of the cpuset controller of cgroups."""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from pinner.host.kernel.files import cpu_mask, text
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
