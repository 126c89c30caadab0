from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.hosts import interleaved, snapshot, topology

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Topology
from pinner.planning.available.allocatable_cpus import AllocatableCpus


@st.composite
def topologies(draw):
    """Nodes with cores of one to four hardware threads, whose numbers are in any order; some are offline."""
    sizes = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=1, max_size=3))
    numbers = draw(st.permutations(range(sum(map(sum, sizes)))))
    left = iter(numbers)
    nodes = {node: [[next(left) for _ in range(size)] for size in cores] for node, cores in enumerate(sizes)}
    offline = draw(st.frozensets(st.sampled_from(numbers[1:]), max_size=3)) if len(numbers) > 1 else frozenset()
    return topology(nodes, offline=str(CpuSet.of(offline)))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine of the tests may be busy
@given(topologies(), st.data())
def test_cores_are_counted_like_the_cores_that_a_walk_over_the_cpus_finds(top, data):
    allocatable = AllocatableCpus.of(snapshot(top), ())
    cpus = CpuSet.of(data.draw(st.frozensets(st.sampled_from(list(top.online)))))
    parts = {cpu: top.online_cores[cpu] & cpus for cpu in cpus}
    assert allocatable.cores_within(cpus) == list(dict.fromkeys(parts.values()))
    assert allocatable.count_cores(cpus) == len(set(parts.values()))
    assert allocatable.count_whole_cores(cpus) == len(
        {part for cpu, part in parts.items() if part == top.online_cores[cpu]}
    )
    assert allocatable.cores_worth(cpus) == round(sum(1 / len(top.online_cores[cpu]) for cpu in cpus), 6)


def test_a_machine_of_equal_cores_has_one_shape():
    (shape,) = interleaved(256, 8).core_shapes
    assert (shape.offsets, str(shape.lowest), str(shape.cpus)) == ((0, 256), "0-255", "0-511")


def test_the_tables_of_a_topology_are_made_once_and_are_no_part_of_its_value():
    top = interleaved(4, 2)
    written = codec.dump(top)
    tables = (
        "online",
        "online_by_node",
        "online_cores",
        "core_shapes",
        "sockets",
        "cpus_by_node",
        "node_by_id",
        "memory_sources",
        "local_memory",
        "fingerprint",
    )
    for table in tables:
        assert getattr(top, table) is getattr(top, table)
    assert codec.dump(top) == written
    assert top == codec.load(Topology, written)
    assert replace(top, cpus=top.cpus[:1]).online == CpuSet.of([0])
