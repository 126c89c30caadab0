"""The things that have an affinity of their own, and the changes that a plan makes to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pinner.model.cpuset import CpuSet

TargetKind = Literal["emulator", "vcpu", "iothread", "vhost", "process", "memory", "workqueue", "partition"]

SETTINGS: tuple[TargetKind, ...] = ("workqueue", "partition")
"""What has a state instead of threads."""

PINNED: tuple[TargetKind, ...] = ("emulator", "vcpu", "iothread")
"""The parts of a guest that libvirt itself knows: it pins them and remembers their pins, they have a place in the
guest's definition, and they are the same parts after a restart. Helpers and memory it does not know."""


@dataclass(frozen=True, slots=True)
class Target:
    """A thing that has an affinity of its own.

    kind      owner        part                changed through
    emulator  guest uuid   None                virDomainPinEmulator
    vcpu      guest uuid   vCPU number         virDomainPinVcpuFlags
    iothread  guest uuid   libvirt's id        virDomainPinIOThread
    helper    guest uuid   thread id           sched_setaffinity (libvirt cannot)
    process   process id   start time          sched_setaffinity of every thread
    memory    guest uuid   QEMU's start time   virDomainSetNumaParameters, migrate_pages
    workqueue (none)       None                the kernel's CPUs for unbound work
    partition cgroup path  None                systemd's AllowedCPUs=, cpuset.cpus.partition

    The last two have no threads of their own but a state, in words: ``0-3`` of the work queues, ``member``,
    ``root 2-7`` or ``isolated 4-7`` of a cgroup.
    """

    kind: TargetKind
    owner: str
    part: int | None
    name: str
    """The guest's or process's name, for people."""

    def __str__(self) -> str:
        if self.kind == "process":
            return f"process {self.name} ({self.owner})"
        if self.kind in SETTINGS:
            return f"{self.kind} {self.name}"
        part = "" if self.part is None or self.kind == "memory" else f" {self.part}"
        return f"guest {self.name} {self.kind}{part}"


@dataclass(frozen=True, slots=True)
class ThreadMask:
    """A thread and its affinity at one moment."""

    tid: int
    started: int
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a plan: the target's threads, each with the mask it has, and the mask all of them get.

    A target that has a state has no ``before`` but ``states``, what it is and what it becomes; ``after`` are its CPUs.
    """

    target: Target
    before: tuple[ThreadMask, ...]
    after: CpuSet
    reason: str
    states: tuple[str, str] = ("", "")

    @property
    def goal(self) -> str:
        """What it leads to, for people: the state that the target gets, or the CPUs that its threads get."""
        return self.states[1] or str(self.after)


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One step of an apply with migrate_memory: what of a guest's memory lies elsewhere goes to ``node``."""

    target: Target
    before: Mapping[int, int]
    """Node id to resident KiB (/proc/PID/numa_maps), as the run began."""
    node: int
    numatune: str
    """The nodes of the guest's live numatune where libvirt may change them; empty: only the kernel is asked."""
    reason: str

    @property
    def goal(self) -> str:
        """What it leads to, for people."""
        return f"node {self.node}"
