"""Settings inside guests, as the agents of the guests tell them. Where one lies, only its guest is written to."""

from dataclasses import KW_ONLY, dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import GuestCpus, State


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """What one guest's agent tells of a kind of setting."""

    guest: str
    """The guest's UUID."""
    name: str
    boot: str = ""
    """The guest kernel's boot_id: settings end with the boot. Empty: not read."""
    _: KW_ONLY
    unread: str = ""
    """Why the guest's agent does not tell them; else empty."""

    @property
    def as_target(self) -> Target:
        return Target("guest", self.guest, None, self.name)


@dataclass(frozen=True, slots=True)
class GuestQueue:
    """A receive queue of an interface in a guest, and the CPUs for its packets."""

    interface: str
    """Its name in the guest."""
    index: int
    """ifindex in the guest."""
    queue: int
    vcpus: CpuSet
    """vCPUs of rps_cpus, by the numbers of the guest's kernel; empty: RPS is off."""


@dataclass(frozen=True, slots=True)
class GuestRps(GuestSettings):
    """Receive queues of virtio cards that have fewer queues than the guest has vCPUs."""

    online: CpuSet = CpuSet()
    """Online vCPUs, by the numbers of the guest's kernel."""
    queues: tuple[GuestQueue, ...] = ()

    def target(self, queue: GuestQueue) -> Target:
        owner = f"{self.guest} {self.boot} {queue.interface} {queue.index}"
        return Target("guest_rps", owner, queue.queue, f"{self.name} {queue.interface}")

    @property
    def states(self) -> dict[Target, State]:
        return {self.target(queue): GuestCpus(queue.vcpus) for queue in self.queues}
