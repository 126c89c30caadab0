"""A host's cores as masks, so that a set of CPUs is counted in cores without a walk over its CPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class CoreShape:
    """The cores whose hardware threads have the same distances from their lowest CPU; a machine has few shapes."""

    offsets: tuple[int, ...]
    """The distance of each hardware thread from the lowest CPU of its core: (0, 256) for CPUs 7 and 263."""
    lowest: CpuSet
    """The lowest CPU of each core."""
    cpus: CpuSet
    """All CPUs of these cores."""

    def touched(self, cpus: CpuSet) -> CpuSet:
        """The cores that have a CPU of ``cpus``, by their lowest CPU."""
        found = 0
        for offset in self.offsets:
            found |= cpus.bits >> offset
        return CpuSet(found & self.lowest.bits)

    def whole(self, cpus: CpuSet) -> int:
        """How many of these cores have all their CPUs in ``cpus``."""
        found = self.lowest.bits
        for offset in self.offsets:
            found &= cpus.bits >> offset
        return found.bit_count()

    def worth(self, cpus: CpuSet) -> float:
        """How many cores the CPUs of these cores in ``cpus`` are: one of two hardware threads is half a core."""
        return len(cpus & self.cpus) / len(self.offsets)


def cores_of(siblings: Iterable[tuple[int, CpuSet]], online: CpuSet) -> dict[int, CpuSet]:
    """For each online CPU the online hardware threads of its core, itself included. Cores share no CPU.

    ``siblings`` has the hardware threads of the core of each online CPU, by ascending CPU.
    """
    cores: dict[int, CpuSet] = {}
    free = online.bits
    for cpu, threads in siblings:
        if cpu not in cores:
            bits = threads.bits & free | 1 << cpu
            core = threads if bits == threads.bits else CpuSet(bits)
            free &= ~bits
            while bits:
                lowest = bits & -bits
                cores[lowest.bit_length() - 1] = core
                bits ^= lowest
    return cores


def shapes_of(cores: Mapping[int, CpuSet]) -> tuple[CoreShape, ...]:
    """The shapes of the cores that ``cores_of`` found."""
    lowest: dict[int, int] = {}
    every: dict[int, int] = {}
    for cpu, core in cores.items():
        shape = core.bits >> cpu
        if shape << cpu == core.bits and shape & 1:  # the lowest CPU of the core
            lowest[shape] = lowest.get(shape, 0) | 1 << cpu
            every[shape] = every.get(shape, 0) | core.bits
    return tuple(CoreShape(tuple(CpuSet(shape)), CpuSet(lowest[shape]), CpuSet(every[shape])) for shape in lowest)
