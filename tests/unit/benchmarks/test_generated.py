import pytest
from benchmarks.peers.generated import SIZES, Shape, guests, sizes

SMALL = Shape(64, 2, 4)


@pytest.mark.parametrize("shape", [SMALL, Shape(256, 4, 8), Shape(1024, 8, 8)])
def test_the_pool_of_a_host_is_isolated_and_lacks_some_cores_of_each_node(shape):
    hardware, pool = shape.hardware
    assert len(hardware.cpus) == shape.cpus
    assert hardware.isolated == pool
    for node in hardware.nodes:
        assert len(node.cpus - pool) == 2 * max(2, len(node.cpus) // 32)


def test_an_l3_domain_has_its_cores_with_both_threads_and_is_within_a_node():
    hardware, _ = SMALL.hardware
    assert [len(domain) for domain in hardware.l3_domains] == [8] * 8
    for domain in hardware.l3_domains:
        assert sum(1 for node in hardware.nodes if node.cpus & domain) == 1
        assert all(cpu.siblings <= domain for cpu in hardware.cpus if cpu.id in domain)


@pytest.mark.parametrize("mix", ["friendly", "any"])
def test_the_guests_fill_the_host_as_asked_and_their_sizes_are_of_the_mix(mix):
    found = sizes(50, 216, mix, seed=1)
    assert len(found) == 50
    assert 208 < sum(found) <= 216
    assert set(found) <= set(SIZES[mix])


def test_the_same_seed_gives_the_same_guests_and_another_seed_gives_others():
    assert sizes(50, 216, "any", seed=1) == sizes(50, 216, "any", seed=1)
    assert sizes(50, 216, "any", seed=1) != sizes(50, 216, "any", seed=2)


def test_guests_that_need_more_than_the_host_has_all_get_the_smallest_size():
    assert sizes(4, 6, "friendly", seed=1) == [2, 2, 2, 2]


def test_a_guest_has_as_many_vcpus_as_its_size():
    hardware, pool = SMALL.hardware
    assert [len(guest.vcpus) for guest in guests([2, 5], hardware.online - pool)] == [2, 5]
