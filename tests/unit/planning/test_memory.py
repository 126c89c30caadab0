"""Where guests' memory lies, and what of it would be remote."""

from dataclasses import replace

import pytest
from support.hosts import guest, interleaved, plain, snapshot, topology

from pinner import codec
from pinner.model.change import Target
from pinner.model.plan import GuestMemory, Plan
from pinner.model.request import Request
from pinner.planning.planner import plan

TWO = plain(32, 2)


def memory(made: Plan) -> dict[str, tuple[int, int, int | None]]:
    return {each.target.name: (each.remote_now_kib, each.remote_kib, each.home) for each in made.memory}


@pytest.mark.parametrize(
    ("strategy", "held", "expected"),
    [
        ("numa-local", {0: 400, 1: 600}, (500, 400, 1)),
        ("numa-local", {0: 600, 1: 400}, (500, 400, 0)),
        ("numa-local", {1: 1000}, (500, 0, 1)),
        ("shared-pool", {0: 400, 1: 600}, (500, 500, None)),
        ("shared-pool", {1: 1000}, (500, 500, None)),
    ],
)
def test_what_would_be_remote(strategy, held, expected):
    made = plan(snapshot(TWO, [guest(1, 4, TWO.online, memory=held)]), "s", Request(strategy))
    assert made.memory == (GuestMemory(Target("memory", guest(1, 4, TWO.online).uuid, 7, "g1"), held, *expected),)


def test_vcpus_on_one_node_of_a_shared_pool_have_a_home():
    request = Request("shared-pool", housekeeping="16-23", emulator="24-31")
    made = plan(snapshot(TWO, [guest(1, 4, TWO.online, memory={0: 300, 1: 700})]), "s", request)
    assert memory(made) == {"g1": (500, 700, 0)}


def test_isolated():
    host = interleaved(16, isolated="4-15,20-31", nohz_full="4-15,20-31")
    made = plan(snapshot(host, [guest(1, 4, host.online, memory={0: 10, 1: 30})]), "s", Request("isolated"))
    assert memory(made) == {"g1": (20, 10, 1)}


def test_pools_of_unequal_share_are_weighed():
    """12 CPUs of node 0 and 4 of node 1 are left to vCPUs."""
    request = Request("shared-pool", housekeeping="0-3", emulator="16-27")
    made = plan(snapshot(TWO, [guest(1, 2, TWO.online, memory={0: 800, 1: 800})]), "s", request)
    assert memory(made) == {"g1": (800, 800, None)}
    made = plan(snapshot(TWO, [guest(1, 2, TWO.online, memory={0: 1600})]), "s", request)
    assert memory(made) == {"g1": (800, 400, None)}


def test_a_host_of_one_node_has_nowhere_to_move_to():
    host = plain(16)
    made = plan(snapshot(host, [guest(1, 4, host.online, memory={0: 9})]), "s", Request("numa-local"))
    assert memory(made) == {"g1": (0, 0, None)}


def test_another_node_without_memory_is_nowhere_to_move_to():
    host = topology({0: [[c] for c in range(8)], 1: [[c] for c in range(8, 16)]}, memory_kib={0: 1 << 24})
    made = plan(snapshot(host, [guest(1, 4, host.online, memory={0: 9})]), "s", Request("numa-local"))
    assert memory(made) == {"g1": (4, 0, None)}


def test_guests_that_are_not_placed_stay_as_they_are():
    huge = guest(1, 30, TWO.online, memory={0: 10, 1: 10})
    theirs = guest(2, 2, TWO.online, pins=["4", "5"], memory={0: 30, 1: 10}, dedicated=True)
    made = plan(snapshot(TWO, [huge, theirs]), "s", Request("numa-local"))
    assert memory(made) == {"g1": (10, 10, None), "g2": (10, 10, None)}


@pytest.mark.parametrize("held", [{}, {0: 0}])
def test_a_kernel_that_tells_nothing(held):
    assert plan(snapshot(TWO, [guest(1, 4, TWO.online, memory=held)]), "s", Request("numa-local")).memory == ()


def test_vcpus_that_are_unplugged_ask_for_nothing():
    asleep = replace(guest(1, 2, TWO.online, memory={1: 50}), vcpus=guest(1, 0, TWO.online, unplugged=2).vcpus)
    assert memory(plan(snapshot(TWO, [asleep]), "s", Request("numa-local"))) == {"g1": (0, 0, None)}


def test_plans_from_before_still_load():
    made = plan(snapshot(TWO, [guest(1, 4, TWO.online)]), "s", Request("numa-local"))
    old = {name: value for name, value in codec.plain(made).items() if name != "memory"}
    assert codec.read(Plan, old) == replace(made, memory=())
