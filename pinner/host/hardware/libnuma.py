"""Compares a live host's NUMA nodes in sysfs with libnuma, through py-libnuma.

Its summaries number nodes without gaps, which is wrong on some hosts: only functions of one node or CPU are called.
"""

from collections.abc import Iterator

from pinner.model.machine.topology import Topology


def disagreements(topology: Topology) -> tuple[str, ...]:
    """In the node of a CPU, memory sizes or distances. One sentence with the reason where libnuma cannot be loaded."""
    try:
        return tuple(_differences(topology))
    except (ImportError, OSError, AttributeError) as error:
        # The package loads the library during its import, and raises these errors where it is missing or too old.
        return (f"libnuma cannot be used: {error}",)


def _differences(topology: Topology) -> Iterator[str]:
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
