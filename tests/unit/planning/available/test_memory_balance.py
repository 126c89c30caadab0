"""The running balance of memory: each guest is booked on the node that it gets."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, guest, plain, snapshot, topology

from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.machine.topology import HugePages, Topology
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa import MemoryBalance, everything
from pinner.planning.planner import plan

HOST = plain(32, 2)
"""Pools of 12 CPUs a node: 4-15 and 20-31; 64 GiB a node."""
ISOLATED = plain(32, 2, isolated="4-15,20-31")
PAGE_KIB = 1 << 20


def nodes(made: Plan, top: Topology) -> dict[str, int]:
    """The node of each guest's vCPUs by the guest's name."""
    return {
        want.target.name: node.id
        for want in made.wanted
        if want.target.kind == "vcpu"
        for node in top.nodes
        if want.cpus <= node.cpus
    }


@pytest.mark.parametrize(("strategy", "top"), [("numa-local", HOST), ("isolated", ISOLATED)])
@pytest.mark.parametrize(
    ("shapes", "placed", "why"),
    [
        ([(8, 4), (4, 50), (4, 50)], 3, ""),
        ([(4, 4), (4, 50), (4, 50)], 3, ""),
        ([(4, 30), (4, 30), (4, 34), (4, 34)], 4, ""),
        (
            [(2, 50), (2, 50), (2, 50)],
            2,
            "has 52428800 KiB of memory left for the guest; node 0 has the most, 14680064",
        ),
        ([(2, 65)], 0, "has the guest's 68157440 KiB of memory; the largest has 67108864 KiB"),
    ],
    ids=["wide-first", "three", "pairs", "one-too-many", "larger-than-a-node"],
)
def test_no_node_gets_more_memory_than_it_has(strategy, top, shapes, placed, why):
    guests = [
        guest(n, vcpus, top.online - top.isolated, memory={}, memory_kib=gib * GIB)
        for n, (vcpus, gib) in enumerate(shapes)
    ]
    made = plan(snapshot(top, guests), "s", Request(strategy))
    where = nodes(made, top)
    booked = Counter()
    for each in guests:
        if each.name in where:
            booked[where[each.name]] += each.memory_kib
    assert len(where) == placed
    assert max(booked.values(), default=0) <= 64 * GIB
    assert [why in left.why for left in made.unplaced] == [True] * (len(shapes) - placed)


@pytest.mark.parametrize("strategy", ["numa-local", "isolated"])
def test_memory_that_a_guest_has_already_is_not_counted_twice(strategy):
    top = HOST if strategy == "numa-local" else ISOLATED
    balanced = top.online - top.isolated
    running = [guest(n, 4, balanced, memory={0: 30 * GIB}, memory_kib=30 * GIB) for n in (1, 2)]
    new = guest(3, 2, balanced, memory={1: GIB}, memory_kib=60 * GIB)
    made = plan(snapshot(top, [*running, new]), "s", Request(strategy))
    assert (nodes(made, top), made.unplaced) == ({"g1": 0, "g2": 0, "g3": 1}, ())


def test_a_guest_that_the_plan_does_not_place_keeps_the_memory_of_its_node():
    """g1 floats over node 0 and may still fill 60 GiB there."""
    guests = [
        guest(1, 2, HOST.nodes[0].cpus, memory={}, memory_kib=60 * GIB, excluded=True),
        guest(2, 2, HOST.online, memory={}, memory_kib=50 * GIB),
    ]
    assert nodes(plan(snapshot(HOST, guests), "s", Request("numa-local")), HOST) == {"g2": 1}


def test_guests_that_fit_only_by_memory_first_are_placed():
    """By vCPUs the two small guests would be divided between the nodes, and leave no node for the large one."""
    shapes = [(6, 20), (6, 20), (2, 60)]
    guests = [guest(n, vcpus, HOST.online, memory={}, memory_kib=gib * GIB) for n, (vcpus, gib) in enumerate(shapes)]
    made = plan(snapshot(HOST, guests), "s", Request("numa-local"))
    where = nodes(made, HOST)
    assert where["g0"] == where["g1"] != where["g2"]


def with_pages(top: Topology, pages: dict[int, int]) -> Topology:
    """The host with so many free huge pages of 1 GiB on each node."""
    return replace(
        top, nodes=tuple(replace(n, hugepages=(HugePages(PAGE_KIB, pages[n.id], pages[n.id]),)) for n in top.nodes)
    )


@pytest.mark.parametrize(
    ("pages", "expected"), [({0: 4, 1: 16}, {"g1": 1}), ({0: 16, 1: 4}, {"g1": 0}), ({0: 4, 1: 4}, {})]
)
def test_a_guest_of_huge_pages_gets_a_node_with_enough_free_pages(pages, expected):
    top = with_pages(HOST, pages)
    made = plan(
        snapshot(top, [guest(1, 2, top.online, memory={}, memory_kib=8 * GIB, numa=GuestNuma(page_kib=PAGE_KIB))]),
        "s",
        Request("numa-local"),
    )
    assert nodes(made, top) == expected
    if not expected:
        assert "8388608 KiB of memory in huge pages of 1048576 KiB left for the guest" in made.unplaced[0].why


def test_huge_pages_of_the_host_are_no_room_for_normal_pages():
    top = with_pages(HOST, {0: 60, 1: 0})
    made = plan(snapshot(top, [guest(1, 2, top.online, memory={}, memory_kib=8 * GIB)]), "s", Request("numa-local"))
    assert nodes(made, top) == {"g1": 1}


@pytest.mark.parametrize(("near", "far"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("strategy", ["numa-local", "isolated"])
def test_memory_on_a_node_without_cpus_draws_the_guest_to_the_nearest_node(strategy, near, far):
    top = topology({0: [[c] for c in range(16)], 1: [[c] for c in range(16, 32)], 2: []}, isolated="4-15,20-31")
    if strategy == "numa-local":
        top = topology({0: [[c] for c in range(16)], 1: [[c] for c in range(16, 32)], 2: []})
    away = {near: 12, far: 40, 2: 10}
    top = replace(top, nodes=tuple(replace(n, distances={**n.distances, 2: away[n.id]}) for n in top.nodes))
    made = plan(snapshot(top, [guest(1, 2, top.online - top.isolated, memory={2: GIB})]), "s", Request(strategy))
    assert nodes(made, top) == {"g1": near}
    assert any(f"node {near} is at distance 12 from 100% of the guest's memory" in want.reason for want in made.wanted)


def test_a_balance_books_on_the_node_that_has_the_memory():
    top = topology({0: [[0]], 1: []}, memory_kib={1: 8 * GIB})
    one = guest(1, 1, top.online, memory={}, memory_kib=3 * GIB)
    before = MemoryBalance.of(top, [one])
    after = before.booked(one, everything(one), 0)
    assert (before.room(0), after.room(0), after.room(1), after.room(None)) == (8 * GIB, 5 * GIB, 5 * GIB, None)


def test_a_node_whose_guests_have_more_than_its_memory_has_no_room_but_for_guests_that_have_theirs():
    here, new = (
        guest(n, 1, HOST.online, memory=memory, memory_kib=70 * GIB) for n, memory in ((1, {0: 70 * GIB}), (2, {}))
    )
    balance = MemoryBalance.of(HOST, [here, new])
    assert (balance.room(0), balance.room(1)) == (0, 64 * GIB)
    assert [balance.fits(each, everything(each), 0) for each in (here, new)] == [True, False]


def test_a_host_that_reports_no_memory_has_room_for_every_guest():
    top = plain(16, 2, memory_kib=0)
    made = plan(snapshot(top, [guest(1, 2, top.online, memory={}, memory_kib=99 * GIB)]), "s", Request("numa-local"))
    assert made.unplaced == ()


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 40), st.integers(0, 10)), max_size=8),
    strategy=st.sampled_from(["numa-local", "isolated"]),
)
def test_the_memory_booked_on_a_node_never_exceeds_it(shapes, strategy):
    """Resident memory on one node and the rest of the guests that get it are together at most the node's memory."""
    top = HOST if strategy == "numa-local" else ISOLATED
    guests = [
        guest(
            n,
            vcpus,
            top.online - top.isolated,
            memory={n % 2: min(gib, here) * GIB} if here else {},
            memory_kib=gib * GIB,
        )
        for n, (vcpus, gib, here) in enumerate(shapes)
    ]
    host: Snapshot = snapshot(top, guests)
    where = nodes(plan(host, "s", Request(strategy)), top)
    for node in top.nodes:
        resident = sum(each.memory_per_node.get(node.id, 0) for each in guests)
        rest = sum(
            each.memory_kib - sum(each.memory_per_node.values()) for each in guests if where.get(each.name) == node.id
        )
        assert not rest or resident + rest <= node.memory_kib
