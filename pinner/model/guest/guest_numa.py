"""The NUMA nodes to which a definition binds the guest's memory, and so its vCPUs.

https://libvirt.org/formatdomain.html (numatune, cpu/numa, memoryBacking); Nova writes these for hw:numa_nodes and
hw:mem_page_size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pinner.model.cpuset import CpuSet

STRICT = "strict"
"""libvirt's only mode that is a bound: preferred and interleave are hints, and restrictive can be changed while the
guest runs."""


@dataclass(frozen=True, slots=True)
class MemoryBinding:
    """The NUMA nodes of the host from which memory is allocated."""

    mode: str
    """libvirt's mode: strict (from no other node, as long as the guest runs), preferred, interleave, restrictive."""
    nodes: tuple[int, ...]
    """The ids of the host's nodes."""


@dataclass(frozen=True, slots=True)
class GuestCell:
    """A NUMA node that the guest sees."""

    id: int
    """The number of the cell in the guest."""
    vcpus: CpuSet
    """The numbers of the cell's vCPUs."""
    memory_kib: int
    """The cell's memory in KiB."""
    memory: MemoryBinding | None = None
    """The host's nodes of the cell's memory (memnode); null where only the whole guest has nodes."""


@dataclass(frozen=True, slots=True)
class GuestNuma:
    """The cells of a guest, and what binds them to the host's nodes."""

    cells: tuple[GuestCell, ...] = ()
    """The cells; empty for a guest that sees one node."""
    memory: MemoryBinding | None = None
    """The host's nodes of the whole guest's memory (numatune); null where the definition has none."""
    huge_kib: Mapping[int, int] = field(default_factory=dict)
    """Node id to KiB of the guest's memory in huge pages; empty for a guest that its definition gives none."""
    pins: Mapping[int, CpuSet] = field(default_factory=dict)
    """The CPUs to which Nova pins each vCPU of the cells, by the vCPU's number: the shared CPUs of the cell's node."""
    page_kib: int = 0
    """The size in KiB of the huge pages of the guest's memory; 0: normal pages, or a size that is not known."""

    def bindings(self) -> tuple[MemoryBinding, ...]:
        """The strict ones."""
        if not self.cells and self.memory is None:
            return ()
        cells = (cell.memory or self.memory for cell in self.cells)
        every = tuple(cells) if self.cells else (self.memory,)
        return tuple(each for each in every if each is not None and each.mode == STRICT)

    def binding_of(self, vcpu: int) -> MemoryBinding | None:
        """The strict binding of the memory next to a vCPU."""
        cell = self.cell_of(vcpu)
        found = (cell.memory if cell else None) or self.memory
        return found if found is not None and found.mode == STRICT else None

    def cell_of(self, vcpu: int) -> GuestCell | None:
        return next((cell for cell in self.cells if vcpu in cell.vcpus), None)
