"""The targets that have an affinity or a state of their own, and the kinds of change that are made to them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, assert_never

from pinner.model.cpuset import CpuSet

TargetKind = Literal["emulator", "vcpu", "iothread", "vhost", "process", "memory", "workqueue", "partition", "guest"]

PINNED: tuple[TargetKind, ...] = ("emulator", "vcpu", "iothread")
"""The parts of a guest that libvirt itself knows: it pins them and remembers their pins, they have a place in the
guest's definition, and they are the same parts after a restart. libvirt does not know vhost threads and memory."""


@dataclass(frozen=True, slots=True)
class Target:
    """A thing that has an affinity or a state of its own.

    kind      owner        part                changed through
    emulator  guest uuid   None                virDomainPinEmulator
    vcpu      guest uuid   vCPU number         virDomainPinVcpuFlags
    iothread  guest uuid   libvirt's id        virDomainPinIOThread
    vhost     guest uuid   thread id           sched_setaffinity (libvirt cannot)
    process   process id   start time          sched_setaffinity of every thread
    memory    guest uuid   QEMU's start time   virDomainSetNumaParameters, migrate_pages
    workqueue (none)       None                the kernel's CPUs for unbound work
    partition cgroup path  None                systemd's AllowedCPUs=, cpuset.cpus.partition
    guest     guest uuid   None                nothing: it names a guest that a plan leaves out

    A work queue and a partition have a State instead of threads.
    """

    kind: TargetKind
    owner: str
    part: int | None
    name: str
    """The guest's or process's name, for people."""

    def __str__(self) -> str:
        match self.kind:
            case "process":
                return f"process {self.name} ({self.owner})"
            case "workqueue" | "partition" | "guest":
                return f"{self.kind} {self.name}"
            case "emulator" | "memory":
                return f"guest {self.name} {self.kind}"
            case "vcpu" | "iothread" | "vhost":
                return f"guest {self.name} {self.kind} {self.part}"
        assert_never(self.kind)


class ThreadKey(NamedTuple):
    """The name of a thread: its id and its start time, so that a reused id is not mistaken for it."""

    tid: int
    started: int


@dataclass(frozen=True, slots=True)
class ThreadMask:
    """A thread and its affinity at one moment."""

    tid: int
    started: int
    cpus: CpuSet

    @property
    def key(self) -> ThreadKey:
        """The name of the thread."""
        return ThreadKey(self.tid, self.started)


def masks_of(threads: Iterable[ThreadMask]) -> dict[ThreadKey, CpuSet]:
    """Each thread's mask by the name of the thread."""
    return {thread.key: thread.cpus for thread in threads}


PartitionKind = Literal["member", "root", "isolated"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a cgroup v2 cpuset: the kind of its partition, and its own CPUs."""

    kind: PartitionKind
    cpus: CpuSet
    """None: the cgroup has no limit of its own."""
    invalid: str = ""
    """The kernel's reason why the partition is invalid; empty: it is valid."""

    def __str__(self) -> str:
        invalid = f"invalid ({self.invalid})" if self.invalid else ""
        return " ".join(filter(None, (self.kind, invalid, str(self.cpus))))


State = PartitionState | CpuSet
"""What a target without threads has: a partition its PartitionState, the work queues their CPUs."""


@dataclass(frozen=True, slots=True)
class AffinityChange:
    """A target's threads, each with the mask that it has, and the mask that all of them get."""

    target: Target
    before: tuple[ThreadMask, ...]
    after: CpuSet
    reason: str
    kind: Literal["affinity"] = "affinity"


@dataclass(frozen=True, slots=True)
class StateChange:
    """A target without threads, the state that it has, and the state that it gets."""

    target: Target
    before: State
    after: State
    reason: str
    kind: Literal["state"] = "state"


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A guest's memory on other nodes than ``node``, which moves to ``node``. An apply with migrate_memory makes it."""

    target: Target
    before: Mapping[int, int]
    """Node id to resident KiB (/proc/PID/numa_maps), as the run began."""
    node: int
    numatune: str
    """The nodes of the guest's live numatune where libvirt may change them; empty: only the kernel is asked."""
    reason: str
    kind: Literal["memory"] = "memory"


PlannedChange = AffinityChange | StateChange
"""The kinds of change that a plan has. An apply adds the changes of memory, which it reads when it begins."""

Change = AffinityChange | StateChange | MemoryChange
"""Every kind of change. It is closed: code that distinguishes the kinds matches all of them, with assert_never."""


def cpus_of(state: State) -> CpuSet:
    """The CPUs that a state names."""
    match state:
        case CpuSet():
            return state
        case PartitionState():
            return state.cpus
    assert_never(state)
