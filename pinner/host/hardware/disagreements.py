"""Warnings where libvirt (virConnectGetCapabilities) or libnuma disagrees with sysfs. py-libnuma's summaries number
nodes without gaps, which is wrong on some hosts: only its functions of one node or CPU are called."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lxml import etree

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class NumaCell:
    """``memory_kib`` is None where libvirt does not report it."""

    id: int
    cpus: CpuSet
    siblings: Mapping[int, CpuSet]
    memory_kib: int | None
    distances: Mapping[int, int]


def parse(capabilities_xml: str) -> tuple[NumaCell, ...]:
    """Raises Invalid."""
    # The parser resolves no entity and opens no connection, because the text comes over a socket.
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        host = etree.fromstring(capabilities_xml.encode(), parser)
        return tuple(_cell(cell) for cell in host.iterfind("host/topology/cells/cell"))
    except (etree.XMLSyntaxError, KeyError, ValueError) as error:
        raise Invalid("capabilities", capabilities_xml[:80], f"libvirt's capabilities XML ({error})") from None


def with_libvirt(topology: Topology, capabilities_xml: str) -> tuple[str, ...]:
    return tuple(_from_libvirt(topology, parse(capabilities_xml)))


def _from_libvirt(topology: Topology, cells: tuple[NumaCell, ...]) -> Iterator[str]:
    nodes = {node.id: node for node in topology.nodes}
    listed = {cell.id for cell in cells}
    siblings = {cpu.id: cpu.siblings for cpu in topology.cpus}
    if listed != nodes.keys():
        reported = f"nodes {CpuSet.of(listed)}" if listed else "no nodes"
        yield f"libvirt reports {reported}; sysfs reports nodes {CpuSet.of(nodes)}"
    for cell in cells:
        node = nodes.get(cell.id)
        if node is None:
            continue
        if cell.cpus != node.cpus:
            yield f"node {node.id}: libvirt reports CPUs {cell.cpus}; sysfs reports CPUs {node.cpus}"
        if cell.memory_kib not in (None, node.memory_kib):
            sizes = f"libvirt reports {cell.memory_kib} KiB of memory; sysfs reports {node.memory_kib} KiB"
            yield f"node {node.id}: {sizes}"
        if cell.distances and node.distances and cell.distances != node.distances:
            theirs, ours = dict(cell.distances), dict(node.distances)
            yield f"node {node.id}: libvirt reports distances {theirs}; sysfs reports distances {ours}"
        for cpu, threads in cell.siblings.items():
            if cpu in siblings and threads != siblings[cpu]:
                yield f"CPU {cpu}: libvirt reports CPUs {threads} in its core; sysfs reports CPUs {siblings[cpu]}"


def _cell(cell: etree._Element) -> NumaCell:
    cpus = cell.findall("cpus/cpu")
    memory = cell.find("memory")
    return NumaCell(
        id=int(cell.attrib["id"]),
        cpus=CpuSet.of(int(cpu.attrib["id"]) for cpu in cpus),
        siblings={
            int(cpu.attrib["id"]): CpuSet.parse(str(cpu.attrib["siblings"])) for cpu in cpus if "siblings" in cpu.attrib
        },
        memory_kib=None if memory is None else int(memory.text or ""),
        distances={
            int(sibling.attrib["id"]): int(sibling.attrib["value"]) for sibling in cell.iterfind("distances/sibling")
        },
    )


def with_libnuma(topology: Topology) -> tuple[str, ...]:
    try:
        return tuple(_from_libnuma(topology))
    except (ImportError, OSError, AttributeError) as error:
        # The package loads the library during its import, and raises these errors where it is missing or too old.
        return (f"libnuma cannot be used: {error}",)


def _from_libnuma(topology: Topology) -> Iterator[str]:
    import numa  # type: ignore[import-untyped]
    from numa import info, memory

    if not info.numa_available():
        if len(topology.nodes) > 1:
            yield f"libnuma reports no NUMA support; sysfs reports {len(topology.nodes)} nodes"
        return
    # libnuma caches the CPUs of each node. Without this call a CPU that came online later would have no node.
    numa.LIBNUMA.numa_node_to_cpu_update()
    for cpu in topology.cpus:
        node = info.cpu_to_node(cpu.id) if cpu.online else -1
        if node != (-1 if cpu.node is None else cpu.node):
            theirs, ours = ("no node" if id_ in (-1, None) else f"node {id_}" for id_ in (node, cpu.node))
            yield f"CPU {cpu.id}: libnuma reports {theirs}; sysfs reports {ours}"
    for here in topology.nodes:
        total_bytes, _ = memory.node_memory_info(here.id)
        if total_bytes // 1024 != here.memory_kib:
            reported_kib = total_bytes // 1024
            yield f"node {here.id}: libnuma reports {reported_kib} KiB of memory; sysfs reports {here.memory_kib} KiB"
        for there, expected in here.distances.items():
            distance = info.numa_distance(here.id, there)
            if distance != expected:
                yield f"distance from node {here.id} to {there}: libnuma reports {distance}; sysfs reports {expected}"
