"""Made-up hosts and guests for comparisons of placements: the same seed always gives the same ones.

A core has two threads: core c of C has the CPUs c and c + C. The cores of a node, and those of an L3 cache, follow one
another. The first cores of each node are for the host itself; all other CPUs are the pool, isolated at boot, from which
every contender takes the guests' CPUs.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from support.hosts import GIB, guest, process, snapshot, topology

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology
from pinner.model.snapshot import Snapshot

Mix = Literal["friendly", "any"]
"""The sizes of guests. friendly: powers of two, which divide an L3 cache evenly; any: 2 to 16 vCPUs."""

SIZES: dict[Mix, tuple[int, ...]] = {"friendly": (2, 4, 8, 16), "any": tuple(range(2, 17))}
"""The numbers of vCPUs of each mix, ascending."""
NODE_MEMORY = 2048 * GIB
GUEST_MEMORY = 2 * GIB
HOST_SHARE = 16
"""One of so many cores of each node is for the host itself, and at least two."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a host."""

    cpus: int
    nodes: int
    l3_cores: int
    """Cores for each level-3 cache."""

    @property
    def hardware(self) -> tuple[Topology, CpuSet]:
        """The topology, and its pool."""
        cores, per_node = self.cpus // 2, self.cpus // 2 // self.nodes
        own = max(2, per_node // HOST_SHARE)
        nodes = {n: [[c, c + cores] for c in range(n * per_node, (n + 1) * per_node)] for n in range(self.nodes)}
        pool = CpuSet.of(cpu for node in nodes.values() for core in node[own:] for cpu in core)
        bare = topology(nodes, memory_kib=NODE_MEMORY, isolated=str(pool), nohz_full=str(pool))
        cpus = tuple(replace(cpu, l3=cpu.id % cores // self.l3_cores) for cpu in bare.cpus)
        domains = tuple(
            CpuSet.of(cpu.id for cpu in cpus if cpu.l3 == number) for number in range(cores // self.l3_cores)
        )
        return replace(bare, cpus=cpus, l3_domains=domains), pool


def sizes(count: int, total: int, mix: Mix, seed: int) -> list[int]:
    """The vCPUs of ``count`` guests: at most ``total`` together, and so close to it that no guest can get the next
    larger size of the mix. Every guest has the smallest size if that is more than ``total`` already."""
    draw, steps = random.Random(seed), SIZES[mix]
    levels, used, growing = [0] * count, count * steps[0], list(range(count))
    while growing:
        number = draw.choice(growing)
        level = levels[number]
        if level + 1 == len(steps) or used + steps[level + 1] - steps[level] > total:
            growing.remove(number)
        else:
            levels[number], used = level + 1, used + steps[level + 1] - steps[level]
    return [steps[level] for level in levels]


def guests(vcpus: Iterable[int], floor: CpuSet) -> list[Guest]:
    """A guest for each number of vCPUs, not placed yet; the kernel reports no memory of it."""
    return [guest(number, size, floor, memory={}, memory_kib=GUEST_MEMORY) for number, size in enumerate(vcpus)]


def largest_first(guests: Iterable[Guest]) -> list[Guest]:
    """The order that suits every contender best: large guests first, then by UUID."""
    return sorted(guests, key=lambda guest: (-len(guest.vcpus), guest.uuid))


def host(hardware: Topology, placing: Sequence[Guest], processes: int = 0) -> Snapshot:
    """The host with these guests, and with host processes of four threads each, of which every tenth is busy."""
    floor = str(hardware.online - hardware.isolated)
    own = [process(1_000_000 + 10 * n, 0.1 if n % 10 else 5.0, *[floor] * 4) for n in range(processes)]
    return snapshot(hardware, placing, own)
