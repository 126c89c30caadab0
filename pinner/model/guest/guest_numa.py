"""The NUMA nodes and cores that a guest sees, and the host's nodes to which its definition binds its memory, and so its
vCPUs (https://libvirt.org/formatdomain.html). Nova writes these for hw:numa_nodes and hw:mem_page_size."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinner.model.cpuset import CpuSet

STRICT = "strict"
"""libvirt's only mode that is a bound: preferred and interleave are hints, restrictive can change while it runs."""


@dataclass(frozen=True, slots=True)
class MemoryBinding:
    """NUMA nodes of the host for memory."""

    mode: str
    """libvirt's: strict (no other node, as long as the guest runs), preferred, interleave, restrictive."""
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GuestCell:
    """A NUMA node that the guest sees."""

    id: int
    """Its number in the guest."""
    vcpus: CpuSet
    """Numbers of its vCPUs."""
    memory_kib: int
    memory: MemoryBinding | None = None
    """The host's nodes of its memory (memnode); null: only the whole guest has nodes."""


@dataclass(frozen=True, slots=True)
class GuestNuma:
    """A guest's cells, and what binds them to the host's nodes."""

    cells: tuple[GuestCell, ...] = ()
    """Its cells; none for a guest that sees one node."""
    memory: MemoryBinding | None = None
    """The host's nodes of the whole guest's memory (numatune); null: the definition has none."""
    huge_kib: Mapping[int, int] = field(default_factory=dict)
    """Node id to KiB in huge pages; empty where the definition gives none."""
    pins: Mapping[int, CpuSet] = field(default_factory=dict)
    """vCPU number to the CPUs to which Nova pins it: the shared CPUs of its cell's node."""
    page_kib: int = 0
    """KiB of a huge page; 0: normal pages, or not known."""

    def bindings(self) -> tuple[MemoryBinding, ...]:
        if not self.cells and self.memory is None:
            return ()
        cells = (cell.memory or self.memory for cell in self.cells)
        every = tuple(cells) if self.cells else (self.memory,)
        return tuple(each for each in every if each is not None and each.mode == STRICT)

    def binding_of(self, vcpu: int) -> MemoryBinding | None:
        """The strict binding of the memory next to a vCPU."""
        cell = self.cell_of(vcpu)
        binding = (cell.memory if cell else None) or self.memory
        return binding if binding is not None and binding.mode == STRICT else None

    def cell_of(self, vcpu: int) -> GuestCell | None:
        return next((cell for cell in self.cells if vcpu in cell.vcpus), None)


@dataclass(frozen=True, slots=True)
class GuestTopology:
    """The sockets, cores and threads that a guest sees. Threads of a core have neighbouring vCPU numbers."""

    sockets: int
    """Number of sockets."""
    cores: int
    """Cores of a socket, in all its dies and clusters."""
    threads: int
    """Threads of a core."""
