"""A parser of the NUMA parts of libvirt's domain XML: cells, numatune, huge pages. Pure.

Source: https://libvirt.org/formatdomain.html.
"""

from lxml import etree

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest_numa import STRICT, GuestCell, MemoryBinding


def cells(domain: etree._Element) -> tuple[GuestCell, ...]:
    """The guest's cells with the nodes of their memory. Raises Invalid for a list that does not parse."""
    nodes = {
        number: binding
        for memnode in domain.iterfind("numatune/memnode")
        if (binding := _binding(memnode)) and (number := memnode.get("cellid", "")).isdecimal()
    }
    return tuple(
        _cell(cell, cell.get("id", str(position)), nodes)
        for position, cell in enumerate(domain.iterfind("cpu/numa/cell"))
    )


def memory(domain: etree._Element) -> MemoryBinding | None:
    """The nodes of the whole guest's memory; None where the XML names none. Raises Invalid.

    libvirt's XML names no node where numad chose them (placement auto).
    """
    element = domain.find("numatune/memory")
    return None if element is None else _binding(element)


def has_huge_pages(domain: etree._Element) -> bool:
    """Whether huge pages back the guest's memory."""
    return domain.find("memoryBacking/hugepages") is not None


def _cell(cell: etree._Element, number: str, nodes: dict[str, MemoryBinding]) -> GuestCell:
    vcpus = CpuSet.parse(cell.get("cpus", ""), "cpu numa cell")
    return GuestCell(int(number), vcpus, int(cell.get("memory", "0")), nodes.get(number))


def _binding(element: etree._Element) -> MemoryBinding | None:
    nodes = CpuSet.parse(element.get("nodeset", ""), "numatune nodeset")
    return MemoryBinding(element.get("mode", STRICT), tuple(nodes)) if nodes else None
