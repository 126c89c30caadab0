"""Settings of network cards: receive rings, queues, coalescing, and receive packet steering (RPS)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.states import Coalescing, Number, State

if TYPE_CHECKING:
    from pinner.model.machine.topology import Topology

NO_ROOM = ("rx_missed_errors", "rx_fifo_errors", "rx_over_errors")
"""Documentation/networking/statistics.rst."""


@dataclass(frozen=True, slots=True)
class RxRing:
    """The receive ring of an interface."""

    interface: str
    index: int
    size: int
    """Packets that it holds."""
    most: int
    """The driver's largest size."""
    has_dropped: bool
    """Whether the card lacked room for a packet since the driver was loaded."""

    @property
    def target(self) -> Target:
        return Target("ring", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: Number(self.size)}


@dataclass(frozen=True, slots=True)
class CardQueues:
    """Queues that receive and send (combined)."""

    interface: str
    index: int
    count: int
    """Number of queues in use."""
    most: int
    """The driver's largest number."""
    is_up: bool = True
    """Whether the interface is up."""

    @property
    def target(self) -> Target:
        return Target("queues", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: Number(self.count)}


def fitting_queues(interface: str, most: int, topology: "Topology") -> int:
    """One for each online CPU of the card's node, or of the host where its node has none; at most ``most``."""
    node = next((each.node for each in topology.devices if (each.kind, each.name) == ("net", interface)), None)
    near = CpuSet() if node is None else topology.cpus_by_node.get(node, CpuSet()) & topology.online
    return min(most, len(near or topology.online))


MANY_INTERRUPTS = 50_000
"""Packets a second above which a card that gathers none costs the host much time."""
GATHERING_US = 50
"""A plan gives it to such a card: at most 20,000 interrupts a second for each queue."""
FIXED_US, FIXED_FRAMES = 32, 32
"""A plan gives them to a card whose driver adapts them, and to no other card."""
ADAPTIVE = "nic-adaptive-moderation"
"""The code of the finding about such a card; only `--fix` asks for this change."""


@dataclass(frozen=True, slots=True)
class RxCoalescing:
    """How long an interface gathers packets before it interrupts a CPU."""

    interface: str
    index: int
    usecs: int
    """Microseconds between the first packet and the interrupt (rx-usecs)."""
    frames: int
    """Packets after which it interrupts at once (rx-frames); 0: only the time counts."""
    is_adaptive: bool
    """Whether the driver adapts both to the load."""
    rate: float = 0.0
    """Received packets a second; 0: not counted."""

    @property
    def target(self) -> Target:
        return Target("coalescing", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: Coalescing(self.usecs, self.frames, self.is_adaptive)}

    @property
    def fixed(self) -> Coalescing:
        """What it gets in place of an adapted time. A driver that counts no packets refuses a number of them."""
        return Coalescing(FIXED_US, FIXED_FRAMES if self.frames else 0)


Setting = Literal["rings", "queues", "coalescing"]


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A setting of a card that is not known. A driver refuses nothing that it lacks."""

    interface: str
    setting: Setting
    """The setting."""
    why: str
    """The driver's error."""


@dataclass(frozen=True, slots=True)
class RpsQueue:
    """A receive queue of an interface, and the CPUs for its packets (RPS)."""

    interface: str
    index: int
    queue: int
    """The number of the queue."""
    cpus: CpuSet
    """CPUs of rps_cpus; empty: RPS is off."""

    @property
    def target(self) -> Target:
        return Target("rps", f"{self.interface} {self.index}", self.queue, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: self.cpus}
