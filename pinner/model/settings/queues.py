"""The queues of network cards: each queue has an interrupt, and one CPU handles its packets."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import Number, State
from pinner.model.machine.topology import Topology


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
        """The queues as the target of a change."""
        return Target("queues", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        """The number by its target."""
        return {self.target: Number(self.count)}


def fitting_queues(interface: str, most: int, topology: Topology) -> int:
    """The number of queues for a card that allows ``most``: one for each online CPU of its node, or of the host where
    the card has no node with CPUs."""
    node = next((each.node for each in topology.devices if (each.kind, each.name) == ("net", interface)), None)
    near = CpuSet() if node is None else topology.cpus_by_node.get(node, CpuSet()) & topology.online
    return min(most, len(near or topology.online))
