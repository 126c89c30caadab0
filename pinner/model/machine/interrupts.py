"""The interrupts of a host's devices, the CPUs that take them, and what these CPUs are for."""

import re
from dataclasses import dataclass
from typing import Literal

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.states import State

_MANAGED = re.compile(r"nvme\d+q[1-9]\d*|virtio\d+-req\.\d+", re.ASCII)
"""Queues of NVMe and virtio disks: the kernel alone places their interrupts. Queue 0 of an NVMe disk takes
administration commands: its interrupt can be moved."""

CpuRole = Literal["isolated", "vcpu", "emulator", "housekeeping"]
"""isolated: not load-balanced, or Nova's dedicated; vcpu, emulator: of placed guests; housekeeping: all others."""


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
    """The interrupt's number, or the thread's id."""
    name: str
    """The driver's name of it, or the thread's."""
    cpus: CpuSet
    """CPUs that take it, where the kernel reports them; else those that it may use."""
    roles: tuple[RoleCpus, ...]
    """These CPUs by role."""
    is_local: bool | None
    """Whether they are all on the device's node; null where it has none."""
    managed: bool | None
    """Whether the kernel alone places it; null where the kernel does not tell, and for a thread."""
    count: int
    """Interrupts since boot; 0 for a thread."""


@dataclass(frozen=True, slots=True)
class DeviceInterrupts:
    """A device with its interrupts."""

    device: str
    """PCI address; empty for a virtual interface."""
    interface: str
    """The device's network interface; empty: none, or several."""
    node: int | None
    """Id of its NUMA node; null where the kernel reports none."""
    queues: int
    """Receive queues; 0 without an interface."""
    interrupts: tuple[Interrupt, ...]
    """Its interrupts by number, then its NAPI threads."""


@dataclass(frozen=True, slots=True)
class HostInterrupts:
    """The interrupts of a host by device, beside the CPUs of each role."""

    host: str
    devices: tuple[DeviceInterrupts, ...]
    """Devices with interrupts, by node and address."""


def is_managed(name: str, reported: bool | None) -> bool:
    """``reported`` is the kernel's answer; without one (None), only queues of some disks are known."""
    return bool(_MANAGED.fullmatch(name)) if reported is None else reported


def is_passed_through(name: str) -> bool:
    """To a guest (VFIO)."""
    return any(each.strip().startswith("vfio-") for each in name.split(","))


@dataclass(frozen=True, slots=True)
class DeviceIrq:
    """An interrupt of a device, and the CPUs that serve it."""

    number: int
    """The kernel reuses it."""
    name: str
    """The drivers' names of it."""
    device: str
    """Its device's PCI address."""
    cpus: CpuSet
    """CPUs that it may use (smp_affinity_list)."""
    effective: CpuSet = CpuSet()
    """CPUs to which the hardware sent the last one; empty where the kernel does not report them."""
    managed: bool | None = None
    """Whether the kernel alone places it; null where it does not tell."""

    @property
    def taking(self) -> CpuSet:
        """CPUs that take it, or will take the next one. Some hardware, such as x86 without interrupt remapping, follows
        a new affinity when the interrupt fires (kernel/irq/migration.c). Until then the kernel reports a former CPU."""
        return (self.effective & self.cpus) or self.cpus

    @property
    def target(self) -> Target:
        return Target("irq", f"{self.device} {self.name}", self.number, f"{self.name} ({self.device})")


@dataclass(frozen=True, slots=True)
class Balancer:
    """irqbalance as it runs."""

    pid: int
    arguments: str
    """Its command line after the program."""
    banned: CpuSet | None
    """CPUs that its environment bans; null: unreadable."""
    started: int = 0
    banned_now: CpuSet | None = None
    """CPUs that it bans now, by its own answer; null where it was not asked, or does not answer."""

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
    """The interrupts of the host's devices, and the services that move them."""

    irqs: tuple[DeviceIrq, ...] = ()
    """The interrupts by number."""
    balancers: tuple[Balancer, ...] = ()
    """Services that move them."""

    @property
    def states(self) -> dict[Target, State]:
        return {irq.target: irq.cpus for irq in self.irqs}
