"""The examples are drawn in the tests of titus-isolate: two packages of four cores, thread c and c + 8 on a core."""

from itertools import chain

import pytest
from benchmarks.peers import titus
from benchmarks.peers.generated import Shape, guests
from benchmarks.peers.quality import Judge
from support.hosts import cpus, topology

HARDWARE = topology({0: [[c, c + 8] for c in range(4)], 1: [[c, c + 8] for c in range(4, 8)]})


def taken(*counts, free="0-15"):
    machine = titus.packages(HARDWARE, cpus(free))
    return [titus.take(machine, count) for count in counts]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1], [[0]]),
        ([2], [[0, 8]]),
        ([2, 1], [[0, 8], [4]]),
        ([10], [[0, 8, 1, 9, 2, 10, 3, 11, 4, 12]]),
    ],
)
def test_workloads_get_the_threads_of_the_drawn_example(counts, expected):
    assert taken(*counts) == expected


def test_workloads_of_8_4_2_1_and_1_threads_fill_the_machine_and_the_next_one_fails():
    found = taken(8, 4, 2, 1, 1, 1)
    assert [each and len(each) for each in found] == [8, 4, 2, 1, 1, None]
    assert sorted(chain(*found[:-1])) == list(range(16))


def test_workloads_fill_the_holes_of_a_fragmented_machine():
    """The drawn one: every core has one free thread."""
    found = taken(2, 3, 1, 2, free="8,1,10,3,4,13,6,15")
    assert sorted(chain(*found)) == [1, 3, 4, 6, 8, 10, 13, 15]


def test_a_workload_that_does_not_fit_takes_nothing():
    assert taken(15, 2, 1)[1:] == [None, [15]]


def test_every_guest_of_a_generated_host_gets_cpus_of_its_own():
    hardware, pool = Shape(64, 2, 4).hardware
    placing = guests([16, 16, 13, 7, 3], hardware.online - pool)
    assert Judge(hardware, pool).quality(titus.place(hardware, pool, placing)).unplaced == 0
