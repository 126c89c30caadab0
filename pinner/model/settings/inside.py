"""Settings inside guests, as the agents of the guests tell them. Where one lies, only its guest is written to."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.settings.sysctls import DEFAULT_BUFFER, SYSCTLS
from pinner.model.states import GuestCpus, Number, State


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
    """The number of the queue."""
    vcpus: CpuSet
    """vCPUs of rps_cpus, by the numbers of the guest's kernel; empty: RPS is off."""


@dataclass(frozen=True, slots=True)
class GuestRps(GuestSettings):
    """Receive queues of virtio cards that have fewer queues than the guest has vCPUs."""

    online: CpuSet = CpuSet()
    """Online vCPUs, by the numbers of the guest's kernel."""
    queues: tuple[GuestQueue, ...] = ()
    """The queues."""

    def target(self, queue: GuestQueue) -> Target:
        owner = f"{self.guest} {self.boot} {queue.interface} {queue.index}"
        return Target("guest_rps", owner, queue.queue, f"{self.name} {queue.interface}")

    @property
    def states(self) -> dict[Target, State]:
        return {self.target(queue): GuestCpus(queue.vcpus) for queue in self.queues}

    @property
    def is_set(self) -> bool:
        """Whether a plan would change nothing."""
        return all(queue.vcpus for queue in self.queues)


FLOWS = Number(4096)
"""A plan gives it to the kernel of a guest, and to each receive queue."""


@dataclass(frozen=True, slots=True)
class FlowQueue:
    """A receive queue of an interface in a guest, and how many flows it steers."""

    interface: str
    """Its name in the guest."""
    index: int
    """ifindex in the guest."""
    queue: int
    """The number of the queue."""
    flows: int
    """rps_flow_cnt; 0: RFS is off."""


@dataclass(frozen=True, slots=True)
class GuestRfs(GuestSettings):
    """RFS of virtio cards that have fewer queues than the guest has vCPUs."""

    entries: int = 0
    """rps_sock_flow_entries: flows that the guest's kernel knows; 0: RFS is off, or there is no such queue."""
    queues: tuple[FlowQueue, ...] = ()
    """The queues."""

    @property
    def states(self) -> dict[Target, State]:
        """The kernel's own number comes first."""
        if not self.queues:
            return {}
        kernel = Target("guest_rfs", f"{self.guest} {self.boot}", None, f"{self.name} rps_sock_flow_entries")
        return {kernel: Number(self.entries), **{self._target(each): Number(each.flows) for each in self.queues}}

    @property
    def is_set(self) -> bool:
        """Whether a plan would change nothing."""
        return Number(0) not in self.states.values()

    def _target(self, queue: FlowQueue) -> Target:
        owner = f"{self.guest} {self.boot} {queue.interface} {queue.index} {queue.queue}"
        return Target("guest_rfs", owner, None, f"{self.name} {queue.interface} rx-{queue.queue} rps_flow_cnt")


@dataclass(frozen=True, slots=True)
class GuestIrq:
    """An interrupt of a queue of a virtio card in a guest."""

    number: int
    """Its number in the guest. Another interrupt may get it later."""
    name: str
    """The driver's name of it, such as virtio0-input.0."""
    interface: str
    """The card's name in the guest."""
    index: int
    """ifindex of the card in the guest."""
    queue: int
    """The number of the queue."""
    vcpus: CpuSet
    """vCPUs of smp_affinity_list, by the numbers of the guest's kernel."""


@dataclass(frozen=True, slots=True)
class GuestIrqs(GuestSettings):
    """Interrupts of a guest's virtio cards."""

    online: CpuSet = CpuSet()
    """Online vCPUs, by the numbers of the guest's kernel."""
    irqs: tuple[GuestIrq, ...] = ()
    """The interrupts."""

    def target(self, irq: GuestIrq) -> Target:
        owner = f"{self.guest} {self.boot} {irq.interface} {irq.index} {irq.name}"
        return Target("guest_irq", owner, irq.number, f"{self.name} {irq.name}")

    @property
    def states(self) -> dict[Target, State]:
        return {self.target(irq): GuestCpus(irq.vcpus) for irq in self.irqs}

    @property
    def is_set(self) -> bool:
        """Whether a plan would change nothing."""
        return not any(self.online <= irq.vcpus for irq in self.irqs)


RMEM_DEFAULT = "net.core.rmem_default"
BUFFERS: Mapping[str, int] = {
    "net.core.rmem_max": SYSCTLS["net.core.rmem_max"].value,
    RMEM_DEFAULT: DEFAULT_BUFFER,
}
"""Sysctls of guests that a plan may change, with the values that it gives."""


@dataclass(frozen=True, slots=True)
class GuestSysctls(GuestSettings):
    """Receive buffers of UDP in a guest."""

    values: Mapping[str, int] = field(default_factory=dict)
    """Values of sysctls in bytes, by name."""
    lost: int = 0
    """UDP packets that found a receive buffer full since the guest started (UdpRcvbufErrors)."""

    def target(self, key: str) -> Target:
        return Target("guest_sysctl", f"{self.guest} {self.boot} {key}", None, f"{self.name} {key}")

    @property
    def states(self) -> dict[Target, State]:
        return {self.target(key): Number(value) for key, value in self.values.items()}
