"""How network cards gather received packets for one interrupt (interrupt coalescing)."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.kinds import Number, State

MANY_INTERRUPTS = 50_000
"""Packets a second: above it, a card that gathers no interrupts costs the host much time."""
GATHERING_US = 50
"""The microseconds that a plan gives to such a card: at most 20,000 interrupts a second for each queue."""


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
        """The card as the target of a change."""
        return Target("coalescing", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        """The microseconds by their target."""
        return {self.target: Number(self.usecs)}
