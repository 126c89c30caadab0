"""The reading of a host: a snapshot, the details that only checks need, and counters, sampled twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinner.model.machine.interrupts import Balancer, DeviceIrqs
from pinner.model.settings.cards import CardQueues, RefusedSetting, RxCoalescing, RxRing
from pinner.model.settings.rps import RpsQueue
from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IrqCounts:
    """How often an interrupt came."""

    number: int
    """The kernel's number of the interrupt."""
    name: str
    """The names that drivers gave to it (/proc/interrupts): another interrupt may get the number later."""
    counts: Mapping[int, int]
    """CPU to the number of interrupts that it took since boot; a CPU that took none is left out."""

    @property
    def total(self) -> int:
        """The number of interrupts since boot."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Bridge:
    """The state of a bridge that concerns multicast."""

    is_snooping: bool
    """multicast_snooping"""
    is_querier: bool
    """multicast_querier"""
    ports: tuple[str, ...]
    """The interfaces of the bridge."""


@dataclass(frozen=True, slots=True)
class Nic:
    """What only checks need of a network interface: of a card, or of a virtual one (a tap, a bridge)."""

    name: str
    """The name of the interface."""
    index: int
    """The kernel's index of the interface, which may get another name; 0: not known (an old capture)."""
    device: str
    """The PCI address of its card; empty: it is virtual."""
    is_up: bool
    """Whether its operational state is up or unknown."""
    queue_length: int
    """tx_queue_len in packets."""
    rx_flows: tuple[int, ...]
    """rps_flow_cnt of each receive queue."""
    tx_queues: int
    """The number of transmit queues."""
    offloads: Mapping[str, bool] = field(default_factory=dict)
    """The features that can be changed, and whether each is on (ethtool -k)."""
    bridge: Bridge | None = None
    """The state of a bridge; null for other interfaces."""
    refused: str = ""
    """Why the driver does not tell its offloads; empty: it does, or has none."""

    @property
    def key(self) -> int | str:
        """The identity of the interface."""
        return self.index or self.name


@dataclass(frozen=True, slots=True)
class NicCounters:
    """The counters of a network interface."""

    name: str
    """The name of the interface."""
    index: int
    """The kernel's index of the interface; 0: not known (an old capture)."""
    statistics: Mapping[str, int]
    """The kernel's counters (sysfs statistics)."""
    driver: Mapping[str, int] = field(default_factory=dict)
    """The driver's counters of packets without room, for the whole card (ethtool -S)."""
    driver_refusal: str = ""
    """Why the driver does not tell its counters; empty: it does, or has none."""

    @property
    def key(self) -> int | str:
        """The identity of the interface in two samples of a host."""
        return self.index or self.name


@dataclass(frozen=True, slots=True)
class SoftnetCpu:
    """The kernel's counters of received packets of one CPU (/proc/net/softnet_stat)."""

    cpu: int
    processed: int
    dropped: int
    """Packets dropped because the backlog was full."""
    squeezed: int
    """How often the budget ended before the packets did."""


@dataclass(frozen=True, slots=True)
class UdpSocket:
    """A UDP socket of the host that dropped packets, or has unread ones."""

    address: str
    """The local address and port."""
    inode: int
    """The number of the socket: a new socket on the same port has another one."""
    user: int
    """The id of its user."""
    drops: int
    """Packets dropped since the socket was made."""
    unread: int
    """Bytes in its receive buffer."""


@dataclass(frozen=True, slots=True)
class IdleState:
    """An idle state of a CPU (a C-state)."""

    cpu: int
    number: int
    """The kernel's number of the state."""
    name: str
    latency_us: int
    """How long the CPU needs to leave the state."""
    is_disabled: bool
    time_us: int
    """The time in the state since boot."""


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """The times of a thread since it started (/proc/TID/schedstat)."""

    run_ns: int
    """On a CPU."""
    wait_ns: int
    """Runnable, and waiting for a CPU: run delay, which guests see as steal."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The file system of a folder."""

    folder: str
    total_kib: int
    free_kib: int
    """Free for this user."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """The counters of a host at one moment. A field is empty where the host has no such thing."""

    irqs: tuple[IrqCounts, ...] = ()
    nics: tuple[NicCounters, ...] = ()
    softnet: tuple[SoftnetCpu, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """By name, as nstat, /proc/vmstat and /proc/meminfo write them (UdpRcvbufErrors, pswpin, MemAvailable in KiB)."""
    sockets: tuple[UdpSocket, ...] = ()
    idle: tuple[IdleState, ...] = ()
    threads: Mapping[int, ThreadTimes] = field(default_factory=dict)
    """The times of guests' threads and of kernel threads, by thread id."""
    spare_ms: Mapping[int, int] = field(default_factory=dict)
    """The milliseconds in which each CPU ran no thread: it was idle, or handled interrupts, or was stolen."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Pressure stall information in per cent over 10 s, by name (cpu.some, memory.full, system.slice.cpu.some)."""
    swapped_kib: Mapping[int, int] = field(default_factory=dict)
    """The swapped memory of each QEMU, by process id."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, with the reason."""


@dataclass(frozen=True, slots=True)
class HostDetails:
    """The facts of a host that checks need and no plan does. A field is empty where the host has no such thing."""

    nics: tuple[Nic, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """The content of small files of /proc/sys and /sys, by path without the first slash. The sysctls that a plan may
    change are in the snapshot."""
    storage: tuple[Storage, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    """cpu.weight of the cgroups of guests, by path below the mount."""
    are_of_root: Mapping[int, bool] = field(default_factory=dict)
    """Whether each process that may place threads works for root, by process id; one that is left out may."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, with the reason."""


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """The settings of a snapshot that a capture has no files of. A field is null where it was not read."""

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
    """All that a check sees of a host."""

    snapshot: Snapshot
    """The host just before the samples."""
    samples: tuple[HostSample, ...] = ()
    """Two samples; one where nothing was sampled twice (a captured machine); none for a saved snapshot."""
    seconds: float = 0.0
    """The time between the two samples."""
    details: HostDetails = HostDetails()
    """The facts that only checks need; empty for a saved snapshot."""

    @property
    def now(self) -> HostSample:
        """The later sample; an empty one where there is none."""
        return self.samples[-1] if self.samples else HostSample()

    @property
    def before(self) -> HostSample | None:
        """The earlier sample; None where there is one only."""
        return self.samples[0] if len(self.samples) == 2 else None


@dataclass(frozen=True, slots=True)
class SavedReading:
    """What a capture has of a reading besides the files of the machine."""

    samples: tuple[HostSample, ...]
    """Two samples, or one."""
    seconds: float
    """The time between the two."""
    details: HostDetails = HostDetails()
    """The facts that only checks need."""
    settings: SavedSettings | None = None
    """The settings of the snapshot; null in an old capture."""
