"""Guests as libvirt and the kernel see them now. Only active guests have threads, and only they are placed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pinner.model.cpuset import CpuSet
from pinner.model.process import Thread

GuestState = Literal["running", "blocked", "paused", "shutdown", "crashed", "suspended", "unknown"]


@dataclass(frozen=True, slots=True)
class Vcpu:
    """A virtual CPU; ``thread`` is None while it is unplugged."""

    id: int
    thread: Thread | None
    pin: CpuSet
    """What libvirt remembers; Thread.affinity is what holds."""


@dataclass(frozen=True, slots=True)
class IoThread:
    """One of QEMU's iothreads, by libvirt's id."""

    id: int
    thread: Thread | None
    pin: CpuSet


@dataclass(frozen=True, slots=True)
class Emulator:
    """QEMU's other threads: main loop, workers, and vhost workers since Linux 6.4."""

    pin: CpuSet
    threads: tuple[Thread, ...]


@dataclass(frozen=True, slots=True)
class Tap:
    """A network interface of a guest on the host's side; counters as the host sees them, since the tap exists."""

    name: str
    mac: str
    rx_packets: int
    tx_packets: int
    rx_drops: int
    tx_drops: int


@dataclass(frozen=True, slots=True)
class NovaIdentity:
    """What Nova wrote about the instance into the domain's metadata; empty strings where it did not."""

    instance: str
    project: str
    user: str
    flavor: str


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup v2 of a systemd unit: its path below the mount, and its state as Target tells it."""

    path: str
    state: str


@dataclass(frozen=True, slots=True)
class Guest:
    """An active libvirt domain."""

    uuid: str
    name: str
    state: GuestState
    pid: int
    """QEMU's process id."""
    vcpus: tuple[Vcpu, ...]
    emulator: Emulator
    iothreads: tuple[IoThread, ...]
    helpers: tuple[Thread, ...]
    """Kernel threads that work for it outside its process (vhost-PID before Linux 6.4, kvm-pit/PID)."""
    memory_kib: int
    memory_per_node: Mapping[int, int]
    """Node id to resident KiB of the QEMU process (/proc/PID/numa_maps)."""
    taps: tuple[Tap, ...] = ()
    pci: tuple[str, ...] = ()
    """Addresses of passed-through PCI devices."""
    persistent: bool = False
    """Whether libvirt keeps a definition of it that outlives a shutdown."""
    nova: NovaIdentity | None = None
    dedicated: bool = False
    """Nova pinned its vCPUs: they and their CPUs are not ours."""
    exempt: bool = False
    """Its metadata says, under pinner's XML namespace, that its CPUs are to be left alone."""
    cgroups: tuple[Cgroup, ...] = ()
    """The units that hold it, outermost first; none where the cpuset controller of cgroup v2 is not on for them."""
