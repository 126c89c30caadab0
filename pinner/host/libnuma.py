"""A second opinion on a live host's nodes: libnuma, through py-libnuma, compared with sysfs.

py-libnuma's own summaries count nodes from 0 to their number, which is wrong where ids have gaps: only its functions of
one node or CPU are called, with the ids that sysfs gave.
"""

from collections.abc import Iterator

from pinner.model.topology import Topology


def disagreements(topology: Topology) -> tuple[str, ...]:
    """Where libnuma and sysfs differ on the node of a CPU, memory sizes or distances; a sentence for each.

    A host without libnuma gets one sentence that says so.
    """
    try:
        return tuple(_differences(topology))
    except (ImportError, OSError, AttributeError) as error:
        # The package loads the library as it is imported, and fails in these ways where it is missing or too old.
        return (f"libnuma cannot be asked: {error}",)


def _differences(topology: Topology) -> Iterator[str]:
    import numa  # type: ignore[import-untyped]
    from numa import info, memory

    if not info.numa_available():
        if len(topology.nodes) > 1:
            yield f"libnuma sees no NUMA here, sysfs {len(topology.nodes)} nodes"
        return
    # libnuma remembers the CPUs of each node; without this a CPU that came online since would have none.
    numa.LIBNUMA.numa_node_to_cpu_update()
    for cpu in topology.cpus:
        node = info.cpu_to_node(cpu.id) if cpu.online else -1
        if node != (-1 if cpu.node is None else cpu.node):
            yield f"CPU {cpu.id}: libnuma says node {node}, sysfs {cpu.node}"
    for here in topology.nodes:
        total_bytes, _ = memory.node_memory_info(here.id)
        if total_bytes // 1024 != here.memory_kib:
            yield f"node {here.id}: libnuma says {total_bytes // 1024} KiB of memory, sysfs {here.memory_kib}"
        for there, expected in here.distances.items():
            distance = info.numa_distance(here.id, there)
            if distance != expected:
                yield f"distance from node {here.id} to {there}: libnuma says {distance}, sysfs {expected}"
