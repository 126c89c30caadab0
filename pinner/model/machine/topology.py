"""A host's hardware, with the kernel's settings."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.states import Governor, State


@dataclass(frozen=True, slots=True)
class CoreShape:
    """Cores whose threads have the same distances from their lowest CPU."""

    offsets: tuple[int, ...]
    """From the core's lowest CPU: (0, 256) for CPUs 7 and 263."""
    lowest: CpuSet
    cpus: CpuSet

    def touched(self, cpus: CpuSet) -> CpuSet:
        """The lowest CPU of each core that has one of ``cpus``."""
        touched = 0
        for offset in self.offsets:
            touched |= cpus.bits >> offset
        return CpuSet(touched & self.lowest.bits)

    def whole(self, cpus: CpuSet) -> int:
        """How many cores have all their CPUs in ``cpus``."""
        whole = self.lowest.bits
        for offset in self.offsets:
            whole &= cpus.bits >> offset
        return whole.bit_count()

    def worth(self, cpus: CpuSet) -> float:
        """In cores: one of two threads is half a core."""
        return len(cpus & self.cpus) / len(self.offsets)


def cores_of(siblings: Iterable[tuple[int, CpuSet]], online: CpuSet) -> dict[int, CpuSet]:
    """Each online CPU with its core's online threads, itself included. ``siblings`` is ascending by CPU."""
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
    lowest: dict[int, int] = {}
    every: dict[int, int] = {}
    for cpu, core in cores.items():
        shape = core.bits >> cpu
        if shape << cpu == core.bits and shape & 1:  # the lowest CPU of the core
            lowest[shape] = lowest.get(shape, 0) | 1 << cpu
            every[shape] = every.get(shape, 0) | core.bits
    return tuple(CoreShape(tuple(CpuSet(shape)), CpuSet(lowest[shape]), CpuSet(every[shape])) for shape in lowest)


K = TypeVar("K")
NodeId = int | None
"""None: the kernel reports no node for the CPUs."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU. An id is null where the kernel does not report it (an offline CPU, a bare machine)."""

    id: int
    """The kernel's number."""
    node: int | None
    socket: int | None
    """Id of its socket; where the kernel has only sets of CPUs, its number by lowest CPU."""
    die: int | None
    """Id of its die."""
    core: int | None
    """Id of its core."""
    l3: int | None
    """Index in Topology.l3_domains; null without a level-3 cache."""
    siblings: CpuSet
    """Hardware threads of its core, itself included."""
    online: bool = True
    """Whether it runs threads now."""
    isolated: bool = False
    """Outside the kernel's load balancing: isolcpus=domain or an isolated cpuset partition."""
    nohz_full: bool = False
    """Whether it stops its tick while one task runs."""
    governor: str | None = None
    """Frequency governor; null where the kernel has none."""
    core_class: int = 0
    """0: one of the fastest cores; 1: the next slower class, such as an E core; and so on."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of level 2 or higher."""

    level: int
    """The level."""
    size_kib: int
    """KiB; 0: not reported."""
    cpus: CpuSet
    """Online CPUs that share it."""


@dataclass(frozen=True, slots=True)
class HugePages:
    """The huge pages of one size on a NUMA node."""

    size_kib: int
    """KiB of a page."""
    total: int
    """Number of pages."""
    free: int
    """Number of free pages."""


MAX_DISTANCE = 255
"""The kernel has 8 bits for a distance (numa_set_distance), as ACPI's SLIT has."""


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node; it may have no CPU or no memory."""

    id: int
    """The kernel's number."""
    cpus: CpuSet
    """The CPUs."""
    memory_kib: int
    free_kib: int
    """Free memory in KiB."""
    distances: Mapping[int, int]
    """Node id to the firmware's distance (10 is local); empty without a table."""
    hugepages: tuple[HugePages, ...] = ()
    """Its huge pages by size."""


@dataclass(frozen=True, slots=True)
class Device:
    """A PCI function or a network interface."""

    kind: Literal["pci", "net"]
    """pci: a PCI function; net: a network interface."""
    name: str
    """PCI address (0000:3b:00.0), or the interface's name."""
    node: int | None
    """Id of its NUMA node; null where the kernel reports none."""
    description: str = ""
    """Its class or driver."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The host's kernel, as plans and checks need it."""

    release: str
    """Its release, as uname(2) reports it."""
    command_line: str
    """Its command line."""
    cgroup: Literal["v1", "v2", "none"]
    """Where the cpuset controller is mounted."""
    partitions: bool
    """Whether ``isolated`` cpuset partitions of cgroup v2 can be made (Linux 5.15 and later)."""
    unbound: CpuSet = CpuSet()
    """CPUs of unbound kernel work (/sys/devices/virtual/workqueue/cpumask); empty: no such file."""


SLOW_GOVERNORS = ("powersave", "conservative", "ondemand")
"""They lower the frequency until they have seen the load."""
FAST = Governor("performance")


@dataclass(frozen=True, slots=True)
class FrequencyDomain:
    """CPUs with one governor (a policy of the kernel's cpufreq)."""

    number: int
    """The policy's number."""
    cpus: CpuSet
    """Its CPUs, also offline ones."""
    governor: Governor

    @property
    def target(self) -> Target:
        return Target("governor", str(self.cpus), self.number, str(self.cpus))

    @property
    def states(self) -> dict[Target, State]:
        return {self.target: self.governor}


def is_slow(governor: object) -> bool:
    return isinstance(governor, Governor) and governor.name in SLOW_GOVERNORS


@dataclass(frozen=True)
class Topology:
    """A host's CPUs and nodes. Ids are sparse and interleaved on real machines: read them, never compute them. The
    class has no slots, so that it can keep derived tables."""

    cpus: tuple[Cpu, ...]
    """The CPUs."""
    nodes: tuple[Node, ...]
    kernel: Kernel
    l3_domains: tuple[CpuSet, ...] = ()
    """CPUs that share each level-3 cache."""
    devices: tuple[Device, ...] = field(default=())
    """PCI functions and network interfaces."""
    caches: tuple[Cache, ...] = ()
    """Caches of level 2 and higher; empty where the kernel reports none."""
    clusters: tuple[CpuSet, ...] = ()
    """Online CPUs that a KVM vCPU must not leave: the clusters of Arm big.LITTLE. Empty on other hosts."""

    @cached_property
    def online(self) -> CpuSet:
        return CpuSet.of([cpu.id for cpu in self.cpus if cpu.online])

    @cached_property
    def offline(self) -> CpuSet:
        """Present and switched off."""
        return CpuSet.of([cpu.id for cpu in self.cpus if not cpu.online])

    @cached_property
    def isolated(self) -> CpuSet:
        return CpuSet.of([cpu.id for cpu in self.cpus if cpu.isolated])

    @cached_property
    def nohz_full(self) -> CpuSet:
        return CpuSet.of([cpu.id for cpu in self.cpus if cpu.nohz_full])

    @cached_property
    def online_by_node(self) -> Mapping[int | None, CpuSet]:
        """Only nodes with online CPUs, ascending; None: CPUs without a node."""
        nodes = _grouped([(cpu.node, cpu.id) for cpu in self.cpus if cpu.online])
        return {node: nodes[node] for node in sorted(nodes, key=lambda node: (node is None, node))}

    @cached_property
    def l3_by_cpu(self) -> Mapping[int, int | None]:
        """Indexes in ``l3_domains``."""
        return {cpu.id: cpu.l3 for cpu in self.cpus}

    @cached_property
    def online_by_l3(self) -> Mapping[int, CpuSet]:
        return _grouped([(cpu.l3, cpu.id) for cpu in self.cpus if cpu.online and cpu.l3 is not None])

    @cached_property
    def online_cores(self) -> Mapping[int, CpuSet]:
        ordered = sorted((cpu for cpu in self.cpus if cpu.online), key=lambda cpu: cpu.id)
        return cores_of(((cpu.id, cpu.siblings) for cpu in ordered), self.online)

    @cached_property
    def core_count(self) -> int:
        """Of online cores. The two of a module (AMD Bulldozer) are siblings for the kernel, with ids of their own."""
        return len({(self.online_cores[cpu.id], cpu.core) for cpu in self.cpus if cpu.online})

    @cached_property
    def core_shapes(self) -> tuple[CoreShape, ...]:
        return shapes_of(self.online_cores)

    @cached_property
    def sockets(self) -> Mapping[int, int]:
        """Of online CPUs for which the kernel reports one."""
        return {cpu.id: cpu.socket for cpu in self.cpus if cpu.online and cpu.socket is not None}

    @cached_property
    def cpus_by_node(self) -> Mapping[int, CpuSet]:
        """With the offline CPUs whose node is known."""
        return _grouped([(cpu.node, cpu.id) for cpu in self.cpus if cpu.node is not None])

    @cached_property
    def node_by_id(self) -> Mapping[int, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def memory_sources(self) -> Mapping[int, int]:
        """The node from which each node's CPUs get memory: itself, or the nearest and largest one with memory (the
        largest without a distance table). Empty where no node reports any."""
        own = {node.id: node.memory_kib for node in self.nodes if node.memory_kib}

        def rank(node: Node, other: int) -> tuple[bool, int, int, int]:
            return other != node.id, node.distances.get(other, 0), -own[other], other

        return {node.id: min(own, key=lambda other: rank(node, other)) for node in self.nodes if own}

    @cached_property
    def local_memory(self) -> Mapping[int | None, int]:
        """KiB local to each node's CPUs; empty where no node reports any: memory is unknown then, not missing."""
        return {node: self.node_by_id[source].memory_kib for node, source in self.memory_sources.items()}

    @cached_property
    def core_classes(self) -> tuple[CpuSet, ...]:
        """Fastest first; one set where all cores are alike."""
        classes = _grouped([(cpu.core_class, cpu.id) for cpu in self.cpus if cpu.online])
        return tuple(classes[number] for number in sorted(classes))

    @cached_property
    def core_domains(self) -> tuple[CpuSet, ...]:
        """Each class in the parts that one guest prefers: clusters, or L3 domains of unequal size, largest first."""
        return tuple(
            part & cpus
            for cpus in self.core_classes
            for part in self.clusters or [domain for _, domain in self.unequal_l3(cpus)] or [cpus]
            if part & cpus
        )

    def unequal_l3(self, cpus: CpuSet) -> list[tuple[int, CpuSet]]:
        """KiB and CPUs of the level-3 caches of ``cpus``, largest first; empty where they are alike or unknown."""
        parts = [(c.size_kib, c.cpus & cpus) for c in self.caches if c.level == 3 and c.size_kib and c.cpus & cpus]
        if len({size for size, _ in parts}) < 2 or union(part for _, part in parts) != cpus:
            return []
        return sorted(parts, key=lambda part: (-part[0], part[1].lowest))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the facts on which a plan depends: not of free memory, governors, devices and caches."""
        cpus = sorted(self.cpus, key=lambda cpu: cpu.id)
        # A format without !s takes half as long again for values that are no integers.
        facts = [
            *[
                f"cpu {c.id} {c.node!s} {c.socket!s} {c.die!s} {c.core!s} {c.siblings!s} "
                f"{c.online!s} {c.isolated!s} {c.nohz_full!s}"
                for c in cpus
            ],
            *(f"class {c.id} {c.core_class}" for c in cpus if c.core_class),
            *(f"cluster {cluster}" for cluster in self.clusters),
            *(f"node {n.id} {n.cpus} {sorted(n.distances.items())}" for n in sorted(self.nodes, key=lambda n: n.id)),
            self.kernel.command_line,
        ]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _grouped(cpus: Iterable[tuple[K, int]]) -> dict[K, CpuSet]:
    groups: dict[K, int] = {}
    for key, cpu in cpus:
        groups[key] = groups.get(key, 0) | 1 << cpu
    return {key: CpuSet(bits) for key, bits in groups.items()}
