"""Receive packet steering (RPS): the CPUs that process the packets of a receive queue."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import State


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
