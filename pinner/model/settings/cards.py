"""Settings of network cards: receive rings, queues, and coalescing."""

from dataclasses import dataclass
from typing import Literal

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import Number, State
from pinner.model.machine.topology import Topology

NO_ROOM = ("rx_missed_errors", "rx_fifo_errors", "rx_over_errors")
"""Documentation/networking/statistics.rst."""


@dataclass(frozen=True, slots=True)
class RxRing:
    """The receive ring of a network card."""

    interface: str
    """The name of the card's interface."""
    index: int
    """The kernel's index of the interface (ifindex): another interface may get the name later."""
    size: int
    """The number of packets that the ring holds."""
    most: int
    """The largest number that the driver allows."""
    has_dropped: bool
    """Whether the card has dropped packets since the driver was loaded, because it had no room for them."""

    @property
    def target(self) -> Target:
        return Target("ring", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: Number(self.size)}


@dataclass(frozen=True, slots=True)
class CardQueues:
    """The queues of a network card that receive and send (combined)."""

    interface: str
    """The name of the card's interface."""
    index: int
    """The kernel's index of the interface (ifindex): another interface may get the name later."""
    count: int
    """The number of queues that the card uses."""
    most: int
    """The largest number that the driver allows."""
    is_up: bool = True
    """Whether the interface is up."""

    @property
    def target(self) -> Target:
        return Target("queues", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: Number(self.count)}


def fitting_queues(interface: str, most: int, topology: Topology) -> int:
    """One for each online CPU of the card's node, or of the host where it has no node with CPUs; at most ``most``."""
    node = next((each.node for each in topology.devices if (each.kind, each.name) == ("net", interface)), None)
    near = CpuSet() if node is None else topology.cpus_by_node.get(node, CpuSet()) & topology.online
    return min(most, len(near or topology.online))


MANY_INTERRUPTS = 50_000
"""Packets a second above which a card that gathers no interrupts costs the host much time."""
GATHERING_US = 50
"""What a plan gives to such a card: at most 20,000 interrupts a second for each queue."""


@dataclass(frozen=True, slots=True)
class RxCoalescing:
    """The coalescing of the packets that a network card receives."""

    interface: str
    """The name of the card's interface."""
    index: int
    """The kernel's index of the interface (ifindex): another interface may get the name later."""
    usecs: int
    """The microseconds between the first packet and the interrupt (rx-usecs)."""
    frames: int
    """The number of packets after which the card interrupts at once (rx-frames); 0: only the time counts."""
    is_adaptive: bool
    """Whether the driver adapts both to the load."""
    rate: float = 0.0
    """The received packets a second; 0 where they were not counted."""

    @property
    def target(self) -> Target:
        return Target("coalescing", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: Number(self.usecs)}


Setting = Literal["rings", "queues", "coalescing"]


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A setting of a network card that is not known. A driver refuses nothing that it lacks."""

    interface: str
    """The name of the card's interface."""
    setting: Setting
    """The setting."""
    why: str
    """The driver's error."""
