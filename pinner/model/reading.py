"""The reading of a host: a snapshot, and the counters and settings that checks compare, sampled twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinner.model.cpuset import CpuSet
from pinner.model.machine.interrupts import Balancer
from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Irq:
    """An interrupt of a device."""

    number: int
    """The kernel's number of the interrupt."""
    name: str
    """The names that drivers gave to it (/proc/interrupts)."""
    device: str
    """The PCI address of its device; empty: none is known."""
    cpus: CpuSet
    """The CPUs that it may use (smp_affinity_list)."""
    effective: CpuSet
    """The CPUs to which the hardware sent the last one; empty where the kernel does not report them."""
    counts: Mapping[int, int]
    """CPU to the number of interrupts that it took since boot; a CPU that took none is left out."""
    managed: bool | None = None
    """Whether the kernel alone places it (a managed interrupt); null where debugfs does not tell."""

    @property
    def total(self) -> int:
        """The number of interrupts since boot."""
        return sum(self.counts.values())

    @property
    def target(self) -> CpuSet:
        """The CPUs that take it, or will take the next one.

        Some hardware, such as x86 without interrupt remapping, follows a new affinity only when the interrupt fires
        (the kernel's kernel/irq/migration.c). Until then the kernel reports a former CPU as the effective one.
        """
        return (self.effective & self.cpus) or self.cpus


@dataclass(frozen=True, slots=True)
class Rings:
    """The sizes of a NIC's rings in packets (ethtool -g)."""

    rx: int
    rx_max: int
    tx: int
    tx_max: int


@dataclass(frozen=True, slots=True)
class Channels:
    """The numbers of a NIC's queues (ethtool -l)."""

    combined: int
    combined_max: int
    rx: int
    rx_max: int
    tx: int
    tx_max: int


@dataclass(frozen=True, slots=True)
class Coalescing:
    """How a NIC gathers interrupts (ethtool -c)."""

    rx_usecs: int
    rx_frames: int
    is_adaptive: bool


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
class RxQueue:
    """A receive queue of a network interface."""

    rps: CpuSet
    """The CPUs of rps_cpus; empty: RPS is off."""
    flows: int
    """rps_flow_cnt"""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface: of a card, or virtual (a tap, a bridge)."""

    name: str
    """The name of the interface."""
    device: str
    """The PCI address of its card; empty: it is virtual."""
    node: int | None
    """The NUMA node of the card; null where the kernel reports none."""
    is_up: bool
    """Whether its operational state is up or unknown."""
    mtu: int
    """The MTU in bytes."""
    queue_length: int
    """tx_queue_len in packets."""
    master: str
    """The bridge or bond that it belongs to; empty: none."""
    rx_queues: tuple[RxQueue, ...]
    """The receive queues by number."""
    xps: tuple[CpuSet, ...]
    """The CPUs of xps_cpus by transmit queue; empty sets: XPS is off."""
    statistics: Mapping[str, int]
    """The kernel's counters (sysfs statistics)."""
    driver: Mapping[str, int] = field(default_factory=dict)
    """The driver's counters of packets without room, for the whole card (ethtool -S)."""
    rings: Rings | None = None
    channels: Channels | None = None
    coalescing: Coalescing | None = None
    offloads: Mapping[str, bool] = field(default_factory=dict)
    """The features that can be changed, and whether each is on (ethtool -k)."""
    bridge: Bridge | None = None
    """The state of a bridge; null for other interfaces."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """What the driver refused to tell (rings, channels), with the error; a feature that it lacks is left out."""
    index: int = 0
    """The kernel's index of the interface, which may get another name; 0: not known (an old capture)."""

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
    """The counters and settings of a host at one moment. A field is empty where the host has no such thing."""

    irqs: tuple[Irq, ...] = ()
    nics: tuple[Nic, ...] = ()
    softnet: tuple[SoftnetCpu, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """By name, as nstat, /proc/vmstat and /proc/meminfo write them (UdpRcvbufErrors, pswpin, MemAvailable in KiB)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The content of small files of /proc/sys and /sys, by path without the first slash."""
    sockets: tuple[UdpSocket, ...] = ()
    idle: tuple[IdleState, ...] = ()
    threads: Mapping[int, ThreadTimes] = field(default_factory=dict)
    """The times of guests' threads and of kernel threads, by thread id."""
    spare_ms: Mapping[int, int] = field(default_factory=dict)
    """The milliseconds in which each CPU ran no thread: it was idle, or handled interrupts, or was stolen."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Pressure stall information in per cent over 10 s, by name (cpu.some, memory.full, system.slice.cpu.some)."""
    storage: tuple[Storage, ...] = ()
    balancers: tuple[Balancer, ...] = ()
    swapped_kib: Mapping[int, int] = field(default_factory=dict)
    """The swapped memory of each QEMU, by process id."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """cpu.weight of the cgroups of guests and of the top slices, by path below the mount."""
    are_of_root: Mapping[int, bool] = field(default_factory=dict)
    """Whether each process that may place threads works for root, by process id; one that is left out may."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, with the reason."""


@dataclass(frozen=True, slots=True)
class SavedSamples:
    """The samples of a machine as a capture holds them."""

    samples: tuple[HostSample, ...]
    """Two samples, or one."""
    seconds: float
    """The time between the two."""


@dataclass(frozen=True, slots=True)
class HostReading:
    """All that a check sees of a host."""

    snapshot: Snapshot
    samples: tuple[HostSample, ...] = ()
    """Two samples; one where nothing was sampled twice (a captured machine); none for a saved snapshot."""
    seconds: float = 0.0
    """The time between the two samples."""

    @property
    def now(self) -> HostSample:
        """The later sample; an empty one where there is none."""
        return self.samples[-1] if self.samples else HostSample()

    @property
    def before(self) -> HostSample | None:
        """The earlier sample; None where there is one only."""
        return self.samples[0] if len(self.samples) == 2 else None
