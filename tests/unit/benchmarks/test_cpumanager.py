"""The examples are cases of Kubernetes' own tests of these rules (cpu_assignment_test.go), with its topologies."""

from dataclasses import replace

import pytest
from benchmarks.peers import cpumanager
from benchmarks.peers.cpumanager import Machine
from benchmarks.peers.generated import Shape, guests
from benchmarks.peers.quality import Judge
from support.hosts import cpus, topology

from pinner.model.cpuset import CpuSet


def machine(nodes, *, sockets=None, caches=()):
    return Machine.of(replace(topology(nodes, sockets=sockets), l3_domains=tuple(map(cpus, caches))))


ONE_SOCKET = machine({0: [[c, c + 4] for c in range(4)]}, caches=["0-7"])
TWO_SOCKETS = machine({0: [[c, c + 6] for c in (0, 2, 4)], 1: [[c, c + 6] for c in (1, 3, 5)]})
FOUR_NODES = machine(
    {node: [[c, c + 40] for c in range(10 * node, 10 * node + 10)] for node in range(4)},
    sockets={cpu: cpu % 40 // 20 for cpu in range(80)},
)
"""Two sockets of two nodes each; each node has ten cores."""


def taken(machine, free, count, **options):
    found = cpumanager.take(machine, sum(1 << cpu for cpu in cpus(free)), count, **options)
    return None if found is None else CpuSet.of(cpumanager.ids(found))


@pytest.mark.parametrize(
    ("machine", "free", "count", "expected"),
    [
        (ONE_SOCKET, "0,2,4,6", 5, None),
        (ONE_SOCKET, "0-7", 0, ""),
        (ONE_SOCKET, "0-7", 1, "0"),
        (ONE_SOCKET, "1,3,5-7", 1, "6"),
        (ONE_SOCKET, "0-7", 2, "0,4"),
        (ONE_SOCKET, "0-7", 8, "0-7"),
        (ONE_SOCKET, "0-3,6", 2, "2,6"),
        (TWO_SOCKETS, "1-5,7-11", 1, "2"),
        (TWO_SOCKETS, "0-11", 6, "0,2,4,6,8,10"),
        (TWO_SOCKETS, "0-11", 8, "0,6,2,8,4,10,1,7"),
        (FOUR_NODES, "0-79", 40, "0-19,40-59"),
        (FOUR_NODES, "0-79", 20, "0-9,40-49"),
        (FOUR_NODES, "10-39,50-79", 20, "10-19,50-59"),
        (FOUR_NODES, "0-79", 60, "0-29,40-69"),
        (FOUR_NODES, "1-39,41-79", 60, "10-39,50-79"),
        (FOUR_NODES, "0-79", 64, "0-31,40-71"),
    ],
)
def test_a_container_gets_the_cpus_of_the_documented_example(machine, free, count, expected):
    assert taken(machine, free, count) == (None if expected is None else cpus(expected))


NO_SMT_ONE_SOCKET = machine({0: [[c] for c in range(16)]}, caches=["0-3", "4-7", "8-11", "12-15"])
NO_SMT_TWO_SOCKETS = machine(
    {0: [[c] for c in range(8)], 1: [[c] for c in range(8, 16)]}, caches=["0-3", "4-7", "8-11", "12-15"]
)
NO_SMT_TWO_NODES = machine(
    {0: [[c] for c in range(8)], 1: [[c] for c in range(8, 16)]},
    sockets=dict.fromkeys(range(16), 0),
    caches=["0-3", "4-7", "8-11", "12-15"],
)
SMT_ONE_SOCKET = machine({0: [[c, c + 8] for c in range(8)]}, caches=["0-3,8-11", "4-7,12-15"])


@pytest.mark.parametrize(
    ("machine", "free", "count", "expected"),
    [
        (NO_SMT_ONE_SOCKET, "1-15", 10, "1-2,4-11"),
        (NO_SMT_TWO_SOCKETS, "0-15", 4, "0-3"),
        (NO_SMT_TWO_SOCKETS, "2-15", 6, "2-7"),
        (NO_SMT_TWO_SOCKETS, "8-15", 4, "8-11"),
        (NO_SMT_TWO_NODES, "3,4-8,12", 2, "4-5"),
        (SMT_ONE_SOCKET, "2-3,10-11,4-7,12-15", 6, "4-6,12-14"),
        (SMT_ONE_SOCKET, "1-7,9-15", 10, "4-7,12-15,1,9"),
    ],
)
def test_a_container_aligned_with_caches_gets_the_cpus_of_the_documented_example(machine, free, count, expected):
    assert taken(machine, free, count, align_caches=True) == cpus(expected)


@pytest.mark.parametrize("align_caches", [False, True])
def test_containers_fill_a_host_to_the_last_cpu_and_the_next_one_has_no_place(align_caches):
    hardware, pool = Shape(64, 2, 4).hardware
    placing = guests([16, 16, 13, 7, 3, 1, 1], hardware.online - pool)
    assert sum(len(guest.vcpus) for guest in placing) == len(pool) + 1
    quality = Judge(hardware, pool).quality(cpumanager.place(hardware, pool, placing, align_caches=align_caches))
    assert quality.unplaced == 1
