"""Which CPUs take the interrupts of a host's devices, and what these CPUs are for."""

import re
from dataclasses import dataclass
from typing import Literal

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import State

_MANAGED = re.compile(r"nvme\d+q[1-9]\d*|virtio\d+-req\.\d+", re.ASCII)
"""Queues of NVMe and virtio disks, whose interrupts the kernel alone places. Queue 0 of an NVMe disk takes commands of
administration: its interrupt can be moved."""

CpuRole = Literal["isolated", "vcpu", "emulator", "housekeeping"]
"""isolated: outside the kernel's load balancing, or dedicated by Nova; vcpu and emulator: used by placed threads of
guests; housekeeping: all others."""


@dataclass(frozen=True, slots=True)
class RoleCpus:
    """The CPUs of one role."""

    role: CpuRole
    """What the CPUs are for."""
    cpus: CpuSet
    """The CPUs."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """An interrupt of a device, or the thread that polls one of its queues (NAPI)."""

    kind: Literal["irq", "napi"]
    """irq: an interrupt; napi: a kernel thread that polls a queue (threaded NAPI)."""
    number: int
    """The number of the interrupt, or the id of the thread."""
    name: str
    """The name that the driver gave to it, or the name of the thread."""
    cpus: CpuSet
    """The CPUs that take it: those of the hardware where the kernel reports them, else those that it may use."""
    roles: tuple[RoleCpus, ...]
    """These CPUs by role."""
    is_local: bool | None
    """Whether all of these CPUs are on the device's node; null where the device has no node."""
    managed: bool | None
    """Whether the kernel alone places the interrupt; null where it does not tell, and for a thread."""
    count: int
    """The number of interrupts since boot; 0 for a thread."""


@dataclass(frozen=True, slots=True)
class DeviceInterrupts:
    """A device with its interrupts."""

    device: str
    """The PCI address; empty for a virtual interface."""
    interface: str
    """The network interface of the device; empty: it has none, or several."""
    node: int | None
    """The NUMA node of the device; null where the kernel reports none."""
    queues: int
    """The number of receive queues of the interface; 0 without one."""
    interrupts: tuple[Interrupt, ...]
    """Its interrupts by number, then its NAPI threads."""


@dataclass(frozen=True, slots=True)
class HostInterrupts:
    """The interrupts of a host by device."""

    host: str
    """The name of the host."""
    devices: tuple[DeviceInterrupts, ...]
    """The devices that have interrupts, by node and address."""


def is_managed(name: str, reported: bool | None) -> bool:
    """Whether the kernel alone places the interrupt. ``reported`` is the kernel's answer; without one (None), only
    queues of some disks are known."""
    return bool(_MANAGED.fullmatch(name)) if reported is None else reported


def is_passed_through(name: str) -> bool:
    """To a guest (VFIO)."""
    return any(each.strip().startswith("vfio-") for each in name.split(","))


@dataclass(frozen=True, slots=True)
class DeviceIrq:
    """An interrupt of a PCI device, with its affinity."""

    number: int
    """The kernel's number of the interrupt. The kernel reuses numbers."""
    name: str
    """The names that drivers gave to it."""
    device: str
    """The PCI address of its device."""
    cpus: CpuSet
    """The CPUs that it may use (smp_affinity_list)."""
    effective: CpuSet = CpuSet()
    """The CPUs to which the hardware sent the last one; empty where the kernel does not report them."""
    managed: bool | None = None
    """Whether the kernel alone places it (a managed interrupt); null where the kernel does not tell."""

    @property
    def taking(self) -> CpuSet:
        """The CPUs that take it, or will take the next one.

        Some hardware, such as x86 without interrupt remapping, follows a new affinity when the interrupt fires (the
        kernel's kernel/irq/migration.c). Until then the kernel reports a former CPU as the effective one.
        """
        return (self.effective & self.cpus) or self.cpus

    @property
    def target(self) -> Target:
        return Target("irq", f"{self.device} {self.name}", self.number, f"{self.name} ({self.device})")


@dataclass(frozen=True, slots=True)
class Balancer:
    """irqbalance as it runs."""

    pid: int
    """The process id."""
    arguments: str
    """Its command line after the program."""
    banned: CpuSet | None
    """The CPUs that its environment bans; null where the environment cannot be read."""
    started: int = 0
    """The start time, in clock ticks after boot."""
    banned_now: CpuSet | None = None
    """The CPUs that it bans now, by its own answer; null where it was not asked, or does not answer."""

    def bans(self, by_default: CpuSet) -> CpuSet | None:
        """Its own answer, else its environment, which may ban those ``by_default``; None: not known."""
        if self.banned_now is not None:
            return self.banned_now
        return None if self.banned is None else self.banned or by_default

    @property
    def target(self) -> Target:
        return Target("irqbalance", str(self.pid), self.started, "irqbalance")

    @property
    def states(self) -> dict[Target, State]:
        """Empty where irqbalance does not tell them."""
        return {} if self.banned_now is None else {self.target: self.banned_now}


@dataclass(frozen=True, slots=True)
class DeviceIrqs:
    """The interrupts of all PCI devices of a host, and the services that move them."""

    irqs: tuple[DeviceIrq, ...] = ()
    """The interrupts by number."""
    balancers: tuple[Balancer, ...] = ()
    """The services that move interrupts."""

    @property
    def states(self) -> dict[Target, State]:
        return {irq.target: irq.cpus for irq in self.irqs}
