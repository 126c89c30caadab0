import pytest
from benchmarks.peers.generated import Shape, guests, host
from benchmarks.peers.quality import Judge, Quality, places_of

from pinner.model.plan.request import Request
from pinner.planning.planner import plan

HARDWARE, POOL = Shape(64, 2, 4).hardware
"""CPUs c and c + 32 are one core; node 0 has the cores 0-15; its L3 domains have 4 cores each, the first has 2 of the
pool; the host's own cores are 0, 1, 16 and 17."""


def judged(**places):
    return Judge(HARDWARE, POOL).quality(places)


def test_a_guest_within_one_l3_domain_costs_nothing():
    assert judged(a=[4, 36, 5, 37]) == Quality(0, 0, 0, 0)


def test_a_guest_over_two_l3_domains_that_fits_into_one_has_one_extra():
    assert judged(a=[4, 8]) == Quality(1, 0, 0, 0)


def test_a_guest_larger_than_an_l3_domain_needs_two():
    assert judged(a=[4, 36, 5, 37, 6, 38, 7, 39, 8]) == Quality(0, 0, 0, 0)


def test_a_core_with_vcpus_of_two_guests_is_shared():
    assert judged(a=[4], b=[36]) == Quality(0, 1, 0, 0)


def test_a_guest_over_two_nodes_that_fits_into_one_has_one_extra_node_and_l3_domain():
    assert judged(a=[4, 20]) == Quality(1, 0, 1, 0)


def test_a_guest_without_a_place_is_unplaced():
    assert judged(a=None) == Quality(0, 0, 0, 1)


@pytest.mark.parametrize("places", [{"a": [4, 4]}, {"a": [4], "b": [4]}, {"a": [0]}], ids=["itself", "other", "host"])
def test_a_cpu_with_two_vcpus_or_outside_the_pool_is_no_placement(places):
    with pytest.raises(ValueError, match="have several vCPUs or are not in the pool"):
        judged(**places)


def test_a_plan_of_pinner_is_judged_by_the_cpus_of_its_vcpus():
    placing = guests([4, 8, 60], HARDWARE.online - POOL)
    before = host(HARDWARE, placing)
    found = places_of(plan(before, "s", Request("isolated")).wanted, placing)
    assert [found[name] and len(found[name]) for name in ("g0", "g1", "g2")] == [4, 8, None]
    assert Judge(HARDWARE, POOL).quality(found).unplaced == 1
