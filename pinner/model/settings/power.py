"""What CPUs may save: the energy preferences (EPP) of their frequency driver, and how long they may take to wake.
/dev/cpu_dma_latency, which limits all CPUs at once, is no setting: it holds only while a program has it open, so it
ends with the agent, and no undo after that knows of it."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.states import State, Word

PERFORMANCE = Word("performance")
"""The preference that a plan gives."""
DEEP_US = 50
"""Microseconds: a slower wake delays each packet by more than the network does."""
SHALLOW = Word(str(DEEP_US - 1))
"""The limit that a plan gives, in microseconds."""
NO_SLEEP = "n/a"
"""The limit that is no number of microseconds (admin-guide/pm/cpuidle.rst)."""


@dataclass(frozen=True, slots=True)
class EnergyDomain:
    """CPUs with one energy preference (a policy of the kernel's cpufreq)."""

    number: int
    """The policy's number."""
    cpus: CpuSet
    """Its CPUs, also offline ones."""
    preference: Word
    """What the driver prefers, performance or energy; a number from 0 to 255 where it has no name."""
    offered: tuple[str, ...] = ()
    """Preferences that the driver has names for."""
    governor: str = ""
    """The frequency governor. With performance, drivers refuse every other preference."""

    @property
    def target(self) -> Target:
        return Target("epp", str(self.cpus), self.number, str(self.cpus))

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: self.preference}


@dataclass(frozen=True, slots=True)
class WakeLimit:
    """How long a CPU may take to wake."""

    cpu: int
    """The CPU's number."""
    limit: Word
    """Microseconds; 0: no limit; n/a: it may not sleep at all."""
    slowest_us: int = 0
    """Microseconds to wake from the deepest idle state that is enabled; 0: it has none, or is offline."""

    @property
    def target(self) -> Target:
        return Target("latency", str(self.cpu), None, str(self.cpu))

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: self.limit}

    @property
    def is_shallow(self) -> bool:
        """Whether the limit forbids each state with DEEP_US or more."""
        word = self.limit.word
        return word == NO_SLEEP or (word.isdecimal() and 0 < int(word) < DEEP_US)
