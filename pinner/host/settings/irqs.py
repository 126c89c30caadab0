"""The affinities of PCI devices' interrupts (core-api/irq/irq-affinity.rst). The kernel reuses numbers: an interrupt is
found by number, PCI address and drivers' names."""

import errno
import os
import re
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid, NotPermitted, PinnerError
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs

MAX_IRQS = 16384
_FOLDER = "proc/irq"
_LIST = "smp_affinity_list"
_EFFECTIVE = "effective_affinity_list"
_DEVICES = "sys/bus/pci/devices"
_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_MANAGED = "IRQD_AFFINITY_MANAGED"
_OWNER_WRITES = 0o200


def read_device_irqs(root: Path, balancers: tuple[Balancer, ...] = ()) -> DeviceIrqs | None:
    """``balancers`` move them."""
    if not (root / _FOLDER).is_dir():
        return None
    devices = devices_by_irq(root)
    irqs = []
    for number in sorted(devices)[:MAX_IRQS]:
        name, cpus = name_of(root, number), files.cpu_list(root / _FOLDER / str(number) / _LIST)
        if name and cpus is not None:
            effective = files.cpu_list(root / _FOLDER / str(number) / _EFFECTIVE) or CpuSet()
            managed = is_managed(root, number)
            irqs.append(DeviceIrq(number, name, devices[number], cpus, effective, managed))
    return DeviceIrqs(tuple(irqs), balancers)


def devices_by_irq(root: Path) -> dict[int, str]:
    names = {}
    folder = root / _DEVICES
    for name in sorted(filter(_FUNCTION.fullmatch, files.names(folder))):
        if number := files.number(folder / name / "irq"):
            names[number] = name
        for irq in files.names(folder / name / "msi_irqs"):
            if irq.isdecimal():
                names[int(irq)] = name
    return names


def name_of(root: Path, number: int) -> str:
    return files.text(root / "sys/kernel/irq" / str(number) / "actions") or ""


def is_managed(root: Path, number: int) -> bool | None:
    """debugfs tells it (CONFIG_GENERIC_IRQ_DEBUGFS). Newer kernels also let nobody write its affinity."""
    state = files.text(root / "sys/kernel/debug/irq/irqs" / str(number))
    if state is not None:
        return _MANAGED in state
    try:
        mode = os.stat(root / _FOLDER / str(number) / _LIST).st_mode  # noqa: PTH116 - Path objects are too slow
    except OSError:
        return None
    return None if mode & _OWNER_WRITES else True


def affinity(root: Path, target: Target) -> CpuSet:
    """Raises Gone also where its number has another device or driver now."""
    _require_same(root, target)
    cpus = files.cpu_list(root / _FOLDER / str(target.part) / _LIST)
    if cpus is None:
        raise Gone(str(target))
    return cpus


def set_affinity(root: Path, target: Target, cpus: CpuSet) -> None:
    _require_same(root, target)
    try:
        opened = beneath.folder(root / _FOLDER, str(target.part))
        with opened as folder:
            file = files.open_file(_LIST, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, folder)
            try:
                # The kernel refuses a write to the open file of a freed interrupt. So the number cannot get another
                # device between this look and the write.
                _require_same(root, target)
                os.write(file, str(cpus).encode())
            finally:
                os.close(file)
    except OSError as error:
        raise _refused(root, target, cpus, error) from None
    if (now := affinity(root, target)) != cpus:
        effective = files.cpu_list(root / _FOLDER / str(target.part) / _EFFECTIVE)
        says = f"{now} (in effect: {effective})" if effective else str(now)
        raise ApplyFailed(str(target), f"asked for CPUs {cpus}, the kernel says {says}", granted=str(now))


def _require_same(root: Path, target: Target) -> None:
    device, _, name = target.owner.partition(" ")
    if target.part is None or not _FUNCTION.fullmatch(device):
        raise Invalid("irq", str(target)[:80], "the number of an interrupt, the PCI address of its device and its name")
    folder = root / _DEVICES / device
    is_its = (folder / "msi_irqs" / str(target.part)).exists() or files.number(folder / "irq") == target.part
    if not is_its or name_of(root, target.part) != name:
        raise Gone(str(target))


def _refused(root: Path, target: Target, cpus: CpuSet, error: OSError) -> PinnerError:
    """EIO: a managed, per-CPU or freed interrupt; newer kernels EPERM for the first two. ENOMEM is the kernel's answer
    to the write: a failed open is Busy already."""
    try:
        _require_same(root, target)
    except Gone as gone:
        return gone
    if error.errno == errno.EACCES and not is_managed(root, target.part or 0):
        return NotPermitted(str(target), "writing its affinity needs root")
    return ApplyFailed(
        str(target), f"the kernel refuses CPUs {cpus}: {error.strerror}{_HINTS.get(error.errno or 0, '')}"
    )


_ALONE = "; the kernel alone places managed and per-CPU interrupts"
_HINTS = {
    errno.EIO: _ALONE,
    errno.EPERM: _ALONE,
    errno.EACCES: _ALONE,
    errno.ENOSPC: "; these CPUs have no free interrupt vector",
    errno.EROFS: "; the unit of the agent lacks ReadWritePaths=/proc/irq: renew it with pinner-manage setup-host",
}

ROW: HostRow[CpuSet] = HostRow(
    lambda access, target: affinity(access.root, target),
    lambda access, target, state: set_affinity(access.root, target, state),
    lambda facts: read_device_irqs(facts.root, facts.balancers),
)
