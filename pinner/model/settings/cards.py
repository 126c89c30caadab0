"""Settings of network cards: receive rings, queues, coalescing, and receive packet steering (RPS), also inside guests.

A guest's QEMU guest agent tells its part. A guest may lie: that can only lead to a write into the guest itself.
"""

from dataclasses import dataclass
from typing import Literal

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import GuestCpus, Number, State
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


@dataclass(frozen=True, slots=True)
class RpsQueue:
    """A receive queue of a network interface, with the CPUs of its RPS."""

    interface: str
    """The name of the interface."""
    index: int
    """The kernel's index of the interface (ifindex): another interface may get the name later."""
    queue: int
    """The number of the queue."""
    cpus: CpuSet
    """The CPUs of rps_cpus; empty: RPS is off."""

    @property
    def target(self) -> Target:
        return Target("rps", f"{self.interface} {self.index}", self.queue, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: self.cpus}


@dataclass(frozen=True, slots=True)
class GuestQueue:
    """A receive queue of a virtio card in a guest."""

    interface: str
    """The name of the interface in the guest."""
    index: int
    """The index of the interface in the guest (ifindex): another interface may get the name later."""
    queue: int
    """The number of the queue."""
    vcpus: CpuSet
    """The vCPUs of rps_cpus, by the numbers of the guest's kernel; empty: RPS is off."""


@dataclass(frozen=True, slots=True)
class GuestRps:
    """The receive queues of a guest's virtio cards that have fewer queues than the guest has vCPUs."""

    guest: str
    """The UUID of the guest."""
    name: str
    """The name of the guest."""
    boot: str = ""
    """The boot of the guest's kernel (boot_id): the masks end with it. Empty where it was not read."""
    online: CpuSet = CpuSet()
    """The vCPUs that are online, by the numbers of the guest's kernel."""
    queues: tuple[GuestQueue, ...] = ()
    """The queues."""
    unread: str = ""
    """Why the guest's agent does not tell them; empty: it does."""

    def target(self, queue: GuestQueue) -> Target:
        owner = f"{self.guest} {self.boot} {queue.interface} {queue.index}"
        return Target("guest_rps", owner, queue.queue, f"{self.name} {queue.interface}")

    @property
    def as_target(self) -> Target:
        """For a plan that leaves the guest out."""
        return Target("guest", self.guest, None, self.name)

    @property
    def states(self) -> dict[Target, State]:
        return {self.target(queue): GuestCpus(queue.vcpus) for queue in self.queues}
