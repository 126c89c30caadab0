"""Receive packet steering (RPS): the CPUs that process the packets of a receive queue, on the host and inside guests.

A guest's QEMU guest agent tells its part. A guest may lie: that can only lead to a write into the guest itself.
"""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import GuestCpus, State


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
