"""The types of targets' states."""

from dataclasses import dataclass
from typing import Literal, assert_never

from pinner.model.cpuset import CpuSet

PartitionKind = Literal["member", "root", "isolated"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a cgroup v2 cpuset."""

    kind: PartitionKind
    """member: no partition; root: a partition with load balancing; isolated: one without."""
    cpus: CpuSet
    """Empty: the cgroup has no limit of its own."""
    invalid: str = ""
    """The kernel's reason why it is invalid; else empty."""

    def __str__(self) -> str:
        invalid = f"invalid ({self.invalid})" if self.invalid else ""
        return " ".join(filter(None, (self.kind, invalid, str(self.cpus))))


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the kernel."""

    value: int
    """The number."""

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Coalescing:
    """How a card gathers received packets for one interrupt."""

    usecs: int
    """Microseconds between the first packet and the interrupt (rx-usecs)."""
    frames: int = 0
    """Packets after which it interrupts at once (rx-frames); 0: only the time counts."""
    is_adaptive: bool = False
    """Whether the driver adapts both to the load (adaptive-rx)."""

    @property
    def chosen(self) -> "Coalescing":
        """Without the numbers that the driver adapts."""
        return Coalescing(0, is_adaptive=True) if self.is_adaptive else self

    def __str__(self) -> str:
        if self.is_adaptive:
            return "adaptive-rx on"
        return f"rx-usecs {self.usecs}" + (f" rx-frames {self.frames}" if self.frames else "")


@dataclass(frozen=True, slots=True)
class Governor:
    """A frequency governor of the kernel."""

    name: str
    """Its name, such as powersave."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Word:
    """What a file of the kernel holds, such as balance_performance, 0 or n/a."""

    word: str
    """The word."""

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class GuestCpus:
    """A set of vCPUs inside a guest, which are no CPUs of the host."""

    vcpus: CpuSet
    """The vCPUs, by the numbers of the guest's kernel."""

    def __str__(self) -> str:
        return str(self.vcpus)


State = PartitionState | Number | Coalescing | Governor | Word | GuestCpus | CpuSet
"""CpuSet stands last: its JSON is a string, as which pydantic could write the others."""


def cpus_of(state: State) -> CpuSet:
    match state:
        case CpuSet():
            return state
        case PartitionState():
            return state.cpus
        case Number() | Coalescing() | Governor() | Word() | GuestCpus():
            return CpuSet()
    assert_never(state)
