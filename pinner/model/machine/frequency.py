"""CPUs whose frequency the kernel changes together, and their governor."""

from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import Governor, State

SLOW_GOVERNORS = ("powersave", "conservative", "ondemand")
"""They lower the frequency until they have seen the load."""
FAST = Governor("performance")


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
        return Target("governor", str(self.cpus), self.number, str(self.cpus))

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: self.governor}


def is_slow(governor: object) -> bool:
    """A CPU with such a governor runs slowly after a pause."""
    return isinstance(governor, Governor) and governor.name in SLOW_GOVERNORS
