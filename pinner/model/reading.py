"""A snapshot, details that only checks need, and counters, sampled twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinner.model.machine.interrupts import Balancer, DeviceIrqs
from pinner.model.machine.process import CpuQuota
from pinner.model.plan.plan import NO_ROLES, Roles
from pinner.model.settings.cards import CardQueues, RefusedSetting, RpsQueue, RxCoalescing, RxRing
from pinner.model.settings.inside import GuestSettings
from pinner.model.snapshot import Snapshot

SERVICES = "system.slice"
"""systemd's cgroup of the services of the host."""


@dataclass(frozen=True, slots=True)
class IrqCounts:
    number: int
    name: str
    """From /proc/interrupts. Another interrupt may get the number later."""
    counts: Mapping[int, int]
    """By CPU, since boot; only those that took some."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Bridge:
    is_snooping: bool
    is_querier: bool
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nic:
    """What only checks need of a card or a virtual interface."""

    name: str
    index: int
    """Another interface may get its name; 0: not known (an old capture)."""
    device: str
    """PCI address; empty: it is virtual."""
    is_up: bool
    """Operational state up or unknown."""
    queue_length: int
    """tx_queue_len in packets."""
    rx_flows: tuple[int, ...]
    """rps_flow_cnt of each receive queue."""
    tx_queues: int
    offloads: Mapping[str, bool] = field(default_factory=dict)
    """Those that can be changed (ethtool -k)."""
    bridge: Bridge | None = None
    refused: str = ""
    """Why the driver does not tell them."""

    @property
    def key(self) -> int | str:
        return self.index or self.name


@dataclass(frozen=True, slots=True)
class NicCounters:
    name: str
    index: int
    statistics: Mapping[str, int]
    driver: Mapping[str, int] = field(default_factory=dict)
    """The whole card's packets without room (ethtool -S)."""
    driver_refusal: str = ""
    """Why the driver does not tell them."""

    @property
    def key(self) -> int | str:
        return self.index or self.name


@dataclass(frozen=True, slots=True)
class SoftnetCpu:
    """/proc/net/softnet_stat: packets received."""

    cpu: int
    processed: int
    dropped: int
    """The backlog was full."""
    squeezed: int
    """How often the budget ended before the packets did."""


@dataclass(frozen=True, slots=True)
class UdpSocket:
    """One that dropped packets, or has unread ones."""

    address: str
    inode: int
    """A new socket on the same port has another one."""
    user: int
    drops: int
    """Packets since the socket was made."""
    unread: int
    """Bytes in its receive buffer."""


@dataclass(frozen=True, slots=True)
class SocketOwner:
    pid: int
    name: str
    unit: str
    """Of systemd, as Process.unit."""
    receive_buffer: int
    """Bytes, as the kernel counts: twice what SO_RCVBUF asked for, or rmem_default; 0: not known."""


@dataclass(frozen=True, slots=True)
class IdleState:
    cpu: int
    number: int
    name: str
    latency_us: int
    """To leave the state."""
    is_disabled: bool
    time_us: int
    """In the state, since boot."""


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Since the thread started (/proc/TID/schedstat)."""

    run_ns: int
    wait_ns: int
    """Runnable and waiting: run delay, which guests see as steal."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """How long CPU limits stopped a cgroup since it exists, all its CPUs together."""

    quota: CpuQuota | None
    """Its own limit; null: it has none (now)."""
    own_ns: int
    """By its own limit. The kernel counts in the cgroup that has the limit alone."""
    any_ns: int | None
    """By its own and those above it (cpu.stat.local); null before Linux 6.7."""


@dataclass(frozen=True, slots=True)
class Storage:
    folder: str
    total_kib: int
    free_kib: int


@dataclass(frozen=True, slots=True)
class GuestSoftirqs(GuestSettings):
    """What a guest's agent tells of the guest's softirqs."""

    received: Mapping[int, int] = field(default_factory=dict)
    """NET_RX by vCPU, since the guest started; only those that had some."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """Counters at one moment. A field is empty where the host has no such thing."""

    irqs: tuple[IrqCounts, ...] = ()
    nics: tuple[NicCounters, ...] = ()
    softnet: tuple[SoftnetCpu, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """As nstat, /proc/vmstat and /proc/meminfo (KiB) name them; UdpMemPages is of /proc/net/sockstat."""
    sockets: tuple[UdpSocket, ...] = ()
    idle: tuple[IdleState, ...] = ()
    threads: Mapping[int, ThreadTimes] = field(default_factory=dict)
    """By id, those of guests, of the programs in their units, and of the kernel."""
    throttled: Mapping[str, Throttled] = field(default_factory=dict)
    """By path below the mount: cgroups of guests and services that their own limit stopped, and guests' parts."""
    cgroups: Mapping[int, str] = field(default_factory=dict)
    """By thread of a guest, its cgroup where a limit stopped that or one above it."""
    spare_ms: Mapping[int, int] = field(default_factory=dict)
    """By CPU: the time in which no thread ran there (idle, interrupts, stolen)."""
    interrupts_ms: Mapping[int, int] = field(default_factory=dict)
    """By CPU: of spare_ms, in interrupts."""
    stolen_ms: Mapping[int, int] = field(default_factory=dict)
    """By CPU: of spare_ms, while a hypervisor ran others there."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """PSI in per cent over 10 s (cpu.some, memory.full, system.slice.cpu.some)."""
    swapped_kib: Mapping[int, int] = field(default_factory=dict)
    """By QEMU's process id."""
    softirqs: tuple[GuestSoftirqs, ...] = ()
    """Of guests with several vCPUs, where their agents are asked."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """With the reason."""


@dataclass(frozen=True, slots=True)
class HostDetails:
    """What only checks need. A field is empty where the host has no such thing."""

    nics: tuple[Nic, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Small files of /proc/sys and /sys, by path without the first slash; not the sysctls that a plan may change."""
    storage: tuple[Storage, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """cpu.weight of the guests' own cgroups by path below the mount. That of their slice is in the snapshot."""
    are_of_root: Mapping[int, bool] = field(default_factory=dict)
    """By id, processes that may place threads; one that is left out may."""
    socket_owners: Mapping[int, SocketOwner] = field(default_factory=dict)
    """By inode, those of UDP sockets that dropped packets."""
    page_kib: int = 4
    unread: Mapping[str, str] = field(default_factory=dict)
    """With the reason."""


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """Settings that a capture has no files of. Null: not read."""

    irqs: DeviceIrqs | None
    rps: tuple[RpsQueue, ...] | None
    sysctls: Mapping[str, int] | None
    rings: tuple[RxRing, ...] | None
    coalescing: tuple[RxCoalescing, ...] | None
    irqbalance: tuple[Balancer, ...] | None
    queues: tuple[CardQueues, ...] | None
    cpu_weights: Mapping[str, int] | None
    refused: tuple[RefusedSetting, ...]


@dataclass(frozen=True, slots=True)
class HostReading:
    snapshot: Snapshot
    """Taken just before the samples."""
    samples: tuple[HostSample, ...] = ()
    """Two; one where nothing was sampled twice (a captured machine); none for a saved snapshot."""
    seconds: float = 0.0
    """Between the two samples."""
    details: HostDetails = HostDetails()
    """Empty for a saved snapshot."""
    roles: Roles = field(default=NO_ROLES, metadata={"exclude_if": lambda roles: not roles.cpus})
    """Those of a plan, the only CPUs that a remedy gives to anyone; empty where the host has no plan."""

    @property
    def now(self) -> HostSample:
        return self.samples[-1] if self.samples else HostSample()

    @property
    def before(self) -> HostSample | None:
        return self.samples[0] if len(self.samples) == 2 else None


@dataclass(frozen=True, slots=True)
class SavedReading:
    """What a capture has of a reading besides the machine's files."""

    samples: tuple[HostSample, ...]
    seconds: float
    details: HostDetails = HostDetails()
    settings: SavedSettings | None = None
    """Null in an old capture."""
