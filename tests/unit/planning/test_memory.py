"""The nodes of guests' memory, and how much of it would be remote."""

from dataclasses import replace

import pytest
from support.hosts import guest, interleaved, plain, snapshot, topology

from pinner import codec
from pinner.model.change import Target
from pinner.model.plan.plan import GuestMemory, Plan
from pinner.model.plan.request import Request
from pinner.planning.planner import plan

TWO = plain(32, 2)


def memory(made: Plan) -> dict[str, tuple[int, int, int | None]]:
    return {each.target.name: (each.remote_now_kib, each.remote_kib, each.home) for each in made.memory}


@pytest.mark.parametrize(
    ("strategy", "per_node", "expected"),
    [
        ("numa-local", {0: 400, 1: 600}, (500, 400, 1)),
        ("numa-local", {0: 600, 1: 400}, (500, 400, 0)),
        ("numa-local", {1: 1000}, (500, 0, 1)),
        ("shared-pool", {0: 400, 1: 600}, (500, 500, None)),
        ("shared-pool", {1: 1000}, (500, 500, None)),
    ],
)
def test_remote_memory_is_the_mean_over_the_vcpus_now_and_as_planned(strategy, per_node, expected):
    made = plan(snapshot(TWO, [guest(1, 4, TWO.online, memory=per_node)]), "s", Request(strategy))
    assert made.memory == (GuestMemory(Target("memory", guest(1, 4, TWO.online).uuid, 7, "g1"), per_node, *expected),)


def test_vcpus_that_may_run_on_offline_cpus_run_on_the_online_ones():
    top = plain(32, 2, offline="24-31")
    wide, online = (
        plan(snapshot(top, [guest(1, 4, mask, memory={0: 900})]), "s", Request()) for mask in (TWO.online, top.online)
    )
    assert memory(wide) == memory(online)
    assert memory(wide)["g1"][0] == 300


def test_vcpus_on_one_node_of_a_shared_pool_have_a_home():
    request = Request("shared-pool", housekeeping="16-23", emulator="24-31")
    made = plan(snapshot(TWO, [guest(1, 4, TWO.online, memory={0: 300, 1: 700})]), "s", request)
    assert memory(made) == {"g1": (500, 700, 0)}


def test_isolated_gives_a_guest_the_node_of_its_vcpus_as_home():
    host = interleaved(16, isolated="4-15,20-31", nohz_full="4-15,20-31")
    made = plan(snapshot(host, [guest(1, 4, host.online, memory={0: 10, 1: 30})]), "s", Request("isolated"))
    assert memory(made) == {"g1": (20, 10, 1)}


def test_the_nodes_of_a_pool_count_by_their_number_of_cpus():
    """The vCPUs' pool has 12 CPUs of node 0 and 4 of node 1."""
    request = Request("shared-pool", housekeeping="0-3", emulator="16-27")
    made = plan(snapshot(TWO, [guest(1, 2, TWO.online, memory={0: 800, 1: 800})]), "s", request)
    assert memory(made) == {"g1": (800, 800, None)}
    made = plan(snapshot(TWO, [guest(1, 2, TWO.online, memory={0: 1600})]), "s", request)
    assert memory(made) == {"g1": (800, 400, None)}


def test_a_guest_on_a_host_of_one_node_has_no_home():
    host = plain(16)
    made = plan(snapshot(host, [guest(1, 4, host.online, memory={0: 9})]), "s", Request("numa-local"))
    assert memory(made) == {"g1": (0, 0, None)}


def test_a_guest_has_no_home_where_the_other_node_has_no_memory():
    host = topology({0: [[c] for c in range(8)], 1: [[c] for c in range(8, 16)]}, memory_kib={0: 1 << 24})
    made = plan(snapshot(host, [guest(1, 4, host.online, memory={0: 9})]), "s", Request("numa-local"))
    assert memory(made) == {"g1": (4, 0, None)}


def test_the_memory_of_unplaced_guests_is_as_remote_as_now():
    huge = guest(1, 30, TWO.online, memory={0: 10, 1: 10})
    nova_pinned = guest(2, 2, TWO.online, pins=["4", "5"], memory={0: 30, 1: 10}, dedicated=True)
    made = plan(snapshot(TWO, [huge, nova_pinned]), "s", Request("numa-local"))
    assert memory(made) == {"g1": (10, 10, None), "g2": (10, 10, None)}


@pytest.mark.parametrize("per_node", [{}, {0: 0}])
def test_a_guest_without_memory_by_node_is_not_listed(per_node):
    assert plan(snapshot(TWO, [guest(1, 4, TWO.online, memory=per_node)]), "s", Request("numa-local")).memory == ()


def test_unplugged_vcpus_have_no_remote_memory():
    asleep = replace(guest(1, 2, TWO.online, memory={1: 50}), vcpus=guest(1, 0, TWO.online, unplugged=2).vcpus)
    assert memory(plan(snapshot(TWO, [asleep]), "s", Request("numa-local"))) == {"g1": (0, 0, None)}


def test_a_stored_plan_without_memory_still_loads():
    made = plan(snapshot(TWO, [guest(1, 4, TWO.online)]), "s", Request("numa-local"))
    old = {name: value for name, value in codec.plain(made).items() if name != "memory"}
    assert codec.read(Plan, old) == replace(made, memory=())
