"""The frequency domains of a host: CPUs whose frequency the kernel changes together, and their governor."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import Governor, State

SLOW_GOVERNORS = ("powersave", "conservative", "ondemand")
"""The governors that lower the frequency until they have seen the load."""
FAST = Governor("performance")
"""The governor that keeps the highest frequency."""


@dataclass(frozen=True, slots=True)
class FrequencyDomain:
    """CPUs that have one governor (a policy of the kernel's cpufreq)."""

    number: int
    """The kernel's number of the policy."""
    cpus: CpuSet
    """Its CPUs, also those that are offline."""
    governor: Governor
    """The governor."""

    @property
    def target(self) -> Target:
        """The domain as the target of a change: its number, with its CPUs."""
        return Target("governor", str(self.cpus), self.number, str(self.cpus))

    @property
    def states(self) -> dict[Target, State]:
        """The governor by its target."""
        return {self.target: self.governor}


def is_slow(governor: object) -> bool:
    """Whether a CPU with this governor runs slowly after a pause."""
    return isinstance(governor, Governor) and governor.name in SLOW_GOVERNORS
