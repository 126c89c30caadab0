"""The receive rings of network cards, which hold the packets that a CPU has not taken yet."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.kinds import Number, State

NO_ROOM = ("rx_missed_errors", "rx_fifo_errors", "rx_over_errors")
"""The kernel's counters of packets for which a card had no room (Documentation/networking/statistics.rst)."""


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
        """The ring as the target of a change."""
        return Target("ring", f"{self.interface} {self.index}", None, self.interface)

    @property
    def states(self) -> dict[Target, State]:
        """The size by its target."""
        return {self.target: Number(self.size)}
