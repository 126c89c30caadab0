"""Targets, their changes, and the groups of changes that a run makes or undoes together."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pinner.model.cpuset import CpuSet
from pinner.model.kinds import INSIDE, KINDS, OF_GUESTS, TargetKind
from pinner.model.states import State


@dataclass(frozen=True, slots=True)
class Target:
    """A part of a host that has an affinity or a state; or a guest that a plan leaves out.

    kind      owner        part                changed through
    emulator  guest uuid   None                virDomainPinEmulator
    vcpu      guest uuid   vCPU number         virDomainPinVcpuFlags
    iothread  guest uuid   libvirt's id        virDomainPinIOThread
    vhost     guest uuid   thread id           sched_setaffinity (libvirt cannot)
    process   process id   start time          sched_setaffinity of every thread
    memory    guest uuid   QEMU's start time   virDomainSetNumaParameters, migrate_pages
    workqueue (none)       None                the kernel's CPUs for unbound work
    partition cgroup path  None                systemd's AllowedCPUs=, cpuset.cpus.partition
    irq       device, name number              /proc/irq/NUMBER/smp_affinity_list
    rps       name, index  number of a queue   /sys/class/net/NAME/queues/rx-NUMBER/rps_cpus
    sysctl    its name     None                /proc/sys/NAME, with slashes in place of dots
    ring      name, index  None                the kernel's request ETHTOOL_SRINGPARAM
    governor  CPUs         number of a policy  /sys/devices/system/cpu/cpufreq/policyNUMBER/scaling_governor
    epp       CPUs         number of a policy  policyNUMBER/energy_performance_preference, in the same folder
    latency   CPU          None                /sys/devices/system/cpu/cpuCPU/power/pm_qos_resume_latency_us
    coalescing name, index None                the kernel's request ETHTOOL_SCOALESCE
    irqbalance process id  start time          irqbalance's socket: settings cpus
    queues    name, index  None                the kernel's request ETHTOOL_SCHANNELS
    guest_rps guest uuid, boot, name, index; number of a queue; the guest's agent writes rps_cpus
    guest_rfs guest uuid, boot, name, index, queue; None; the guest's agent writes rps_flow_cnt (or, with uuid and boot
              alone, rps_sock_flow_entries)
    guest_irq guest uuid, boot, card, index, driver's name; number; the guest's agent writes smp_affinity_list
    guest_sysctl guest uuid, boot, its name; None; the guest's agent writes /proc/sys/NAME
    weight    name of a slice, None              systemd's CPUWeight=
    metadata  guest uuid   None                virDomainSetMetadata: the pins that are pinner's
    guest     guest uuid   None                nothing: a plan leaves the guest out

    model/kinds.py has the type of each state. The kernel reuses numbers of interrupts, so the device's PCI address and
    the driver's name are part of the identity; so is the index of an interface, whose name another one may get. The
    CPUs of a governor have one frequency. irqbalance's state is the CPUs to which it sends no interrupts. The boot of a
    guest's kernel identifies its settings, because they end with it."""

    kind: TargetKind
    """The kind, as in the table."""
    owner: str
    """The UUID, process id, device or path of its owner."""
    part: int | None
    name: str

    @property
    def key(self) -> "TargetKey":
        """Without the name, which may change."""
        return TargetKey(self.kind, self.owner, self.part)

    def __str__(self) -> str:
        return KINDS[self.kind].words.format(owner=self.owner, part=self.part, name=self.name)


class TargetKey(NamedTuple):
    kind: TargetKind
    owner: str
    part: int | None


class ThreadKey(NamedTuple):
    """The kernel reuses thread ids, so the start time is part of it."""

    tid: int
    started: int


def boots_differ(then: str, now: str) -> bool:
    """Whether the host was restarted in between: ids and start times of threads then belong to others. An empty boot is
    not known, and equals every one."""
    return then != now and "" not in (then, now)


@dataclass(frozen=True, slots=True)
class ThreadMask:
    """A thread's affinity at one moment."""

    tid: int
    started: int
    cpus: CpuSet
    """The CPUs."""

    @property
    def key(self) -> ThreadKey:
        return ThreadKey(self.tid, self.started)


@dataclass(frozen=True, slots=True)
class PartPin:
    """The pin of one part of a guest: a vCPU, an iothread, or the emulator threads."""

    kind: TargetKind
    """emulator, vcpu or iothread."""
    part: int | None
    cpus: CpuSet
    """The CPUs."""

    @property
    def key(self) -> tuple[TargetKind, int | None]:
        return self.kind, self.part


@dataclass(frozen=True, slots=True)
class NamedPins:
    """The pins that pinner's metadata names, in each XML that libvirt has of the guest."""

    live: tuple[PartPin, ...] | None
    """None: the guest does not run."""
    definition: tuple[PartPin, ...] | None
    """None: the guest has no persistent definition."""
    saved: tuple[PartPin, ...] | None = None
    """Of its saved image (virsh managedsave); None: it has none."""


_PIN_ORDER: tuple[TargetKind, ...] = ("emulator", "vcpu", "iothread")


def overlaid(before: Iterable[PartPin], pins: Iterable[PartPin]) -> tuple[PartPin, ...]:
    """``pins`` replace those of the same parts; ordered by part."""
    parts = {pin.key: pin for pin in (*before, *pins)}
    return tuple(sorted(parts.values(), key=lambda pin: (_PIN_ORDER.index(pin.kind), pin.part or 0)))


def masks_of(threads: Iterable[ThreadMask]) -> dict[ThreadKey, CpuSet]:
    return {thread.key: thread.cpus for thread in threads}


@dataclass(frozen=True, slots=True)
class AffinityChange:
    """The CPUs of a target's threads before and after."""

    target: Target
    before: tuple[ThreadMask, ...]
    after: CpuSet
    reason: str
    kind: Literal["affinity"] = "affinity"


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a target without threads."""

    target: Target
    before: State
    after: State
    reason: str
    kind: Literal["state"] = "state"


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A move of a guest's memory to ``node``. Only an apply with migrate_memory makes it."""

    target: Target
    before: Mapping[int, int]
    """Resident KiB by node id when the run began (/proc/PID/numa_maps)."""
    node: int
    """The NUMA node to which it moves."""
    numatune: str
    """Nodes of the live numatune, if libvirt can change them; empty: only the kernel moves memory."""
    reason: str
    kind: Literal["memory"] = "memory"


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """The guest's metadata names the pins of a run. A run makes the change before its first pin of the guest."""

    target: Target
    live: tuple[PartPin, ...]
    """Pins that the running guest's metadata named before."""
    definition: tuple[PartPin, ...]
    """Pins that the persistent definition's metadata named before; only a run with persist changes them."""
    pins: tuple[PartPin, ...]
    """Pins that the run makes. They replace the named pins of the same parts."""
    reason: str
    former: tuple[PartPin, ...] = ()
    """Pins of the same parts in the running guest's XML before."""
    by_hand: bool = field(default=False, metadata={"exclude_if": lambda by_hand: not by_hand})
    """Of a placement by hand: the pins of the guest's other parts may be an operator's. JSON leaves out false."""
    kind: Literal["metadata"] = "metadata"


PlannedChange = AffinityChange | StateChange
"""An apply adds changes of metadata and memory when it begins."""

Change = AffinityChange | StateChange | MemoryChange | MetadataChange
"""A closed union: code that distinguishes its kinds ends with assert_never."""

Group = TargetKey
"""A target's key; for a guest's changes ``("guest", UUID, None)``, for those inside ``(kind, UUID, None)``."""


def group_of(target: Target) -> Group:
    match KINDS[target.kind].group:
        case "guest":
            return TargetKey("guest", target.owner, None)
        case "inside":
            # A guest that does not answer is asked once, whatever number of queues it has.
            return TargetKey(target.kind, target.owner.partition(" ")[0], None)
        case "own":
            return target.key


_INSIDE = re.compile(r" (\S+ rx-\d+ )?\S+$")
"""What follows the guest in the name of a target inside it."""


def guests_of(targets: Iterable[Target]) -> dict[str, str]:
    """UUID to name, also of those inside which something changes."""
    return {
        group_of(target).owner: target.name if target.kind in OF_GUESTS else _INSIDE.sub("", target.name)
        for target in targets
        if target.kind in (*OF_GUESTS, *INSIDE)
    }


def group_name(target: Target) -> str:
    return f"guest {target.name}" if target.kind in OF_GUESTS else str(target)


def is_of_the_host(target: Target) -> bool:
    return KINDS[target.kind].is_for_all_guests


def are_independent(changes: Iterable[Change]) -> bool:
    """A change of the host itself, such as a partition, is made for all groups."""
    return not any(is_of_the_host(change.target) for change in changes)


def of_vcpus(changes: Iterable[Change]) -> Iterator[AffinityChange]:
    return (change for change in changes if isinstance(change, AffinityChange) and change.target.kind == "vcpu")


def contiguous(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The groups keep the order of their first changes of vCPUs (else of their first changes), so that a guest leaves
    its CPUs before another one gets them."""
    first: dict[Group, int] = {}
    for vcpus in (True, False):
        for position, change in enumerate(changes):
            if not vcpus or change.target.kind == "vcpu":
                first.setdefault(group_of(change.target), position)
    return tuple(sorted(changes, key=lambda change: first[group_of(change.target)]))


def without_room(unmade: Iterable[Change], others: Sequence[Change]) -> Iterator[tuple[int, str]]:
    """Positions of the ``others`` that give a vCPU the only CPU of another one, which one of the ``unmade`` would have
    moved away; with the reason."""
    held = {
        mask.cpus: change.target
        for change in of_vcpus(unmade)
        for mask in change.before
        if len(mask.cpus) == 1 and mask.cpus != change.after
    }
    for position, change in enumerate(others):
        if isinstance(change, AffinityChange) and change.target.kind == "vcpu" and change.after in held:
            yield position, f"CPU {change.after} is still in use by {held[change.after]}, which could not be moved"
