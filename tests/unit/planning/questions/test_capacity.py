"""The room of a host: its numbers, and that the planner agrees with them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, applied, cpus, guest, interleaved, plain, snapshot
from support.made_up.anyhost import STRATEGIES, snapshots

from pinner import codec
from pinner.model.change import TargetKey
from pinner.model.cpuset import CpuSet
from pinner.model.errors import NoFit, NotFound
from pinner.model.guest.guest import Guest, NovaIdentity
from pinner.model.guest.nova import NovaConf
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import Request
from pinner.model.questions import Capacity, StrategyCapacity, with_sizes
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa import bounds_of
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement
from pinner.planning.questions.capacity import capacity

HOST = plain(32, 2)
"""Pools of 12 CPUs a node: 4-15 and 20-31."""


def newcomer(number: int, vcpus: int, host: Snapshot, strategy: str) -> Guest:
    """A guest that has just started, whose flavor asks for a strategy."""
    flavor = NovaIdentity("i", "p", "u", "f", {"pinner:strategy": strategy})
    return guest(100 + number, vcpus, host.topology.online, memory={}, memory_kib=0, nova=flavor)


def with_newcomers(host: Snapshot, count: int, vcpus: int, strategy: str) -> Snapshot:
    return replace(host, guests=(*host.guests, *(newcomer(n, vcpus, host, strategy) for n in range(count))))


def of(found: Capacity, strategy: str) -> StrategyCapacity:
    return next(each for each in found.strategies if each.strategy == strategy)


def in_place(host: Snapshot, request: Request) -> tuple[Snapshot, Placement]:
    """The host after a plan of the request, and the recorded placement."""
    made = plan(host, "s", request)
    return applied(host, made), record(made, host, None)


def masks(made: Plan) -> Mapping[TargetKey, CpuSet]:
    return {want.target.key: want.cpus for want in made.wanted if want.target.kind == "vcpu"}


def overcommit(made: Plan) -> float:
    return made.objective.term("overcommit").after


def place(host: Snapshot, request: Request, placement: Placement, count: int, vcpus: int, strategy: str) -> str:
    """Why the planner cannot place the newcomers beside the present guests; empty where it can."""
    before = plan_from_placement(host, "s", request, placement)
    made = plan_from_placement(with_newcomers(host, count, vcpus, strategy), "s", request, placement)
    names = {f"g{100 + number}" for number in range(count)}
    if any(f"guest {name}: its flavor has" in warning for name in names for warning in made.warnings):
        return "another strategy"
    if names & {left.target.name for left in made.unplaced}:
        return "unplaced"
    # Those that float keep fewer of their CPUs where ``exclusive`` takes some.
    if any(not masks(made)[key] <= mask for key, mask in masks(before).items()):
        return "another guest moves"
    return "overcommit" if overcommit(made) > overcommit(before) + 1e-5 else ""


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(
    host=snapshots(),
    size=st.integers(1, 4),
    asked=st.sampled_from(STRATEGIES),
    smt=st.sampled_from(["prefer", "isolate", "require"]),
)
def test_the_planner_places_so_many_guests_and_no_more(
    host: Snapshot, size: int, asked: str, smt: str, strategy: str
) -> None:
    request = Request(strategy, smt=smt, moves=0)
    try:
        host, placement = in_place(host, request)
    except NoFit:
        assume(False)
    room = of(with_sizes(capacity(host, request, placement), (size,)), asked)
    if room.why:
        assert room.guests == {size: 0}
        return
    count = room.guests[size]
    # The planner counts vCPUs, and the objective each CPU by itself. They differ where guests of several strategies, or
    # guests that the plan does not place, spread unevenly over a pool; and on isolated CPUs, where only pins count.
    beside = plan_from_placement(host, "s", request, placement)
    own = {want.target.owner for want in beside.wanted if want.target.kind == "vcpu"}
    specs = [guest.nova.extra_specs for guest in host.guests if guest.nova]
    uneven = asked == "isolated" or asked != strategy or any("pinner:strategy" in each for each in specs)
    uneven = uneven or any(guest.uuid not in own for guest in host.guests)
    # So do guests that are bound to some nodes of the pool.
    uneven = uneven or bool(bounds_of(host.guests, host.topology))
    assert place(host, request, placement, count, size, asked) in ("", "overcommit" if uneven else "")
    # Guests that float may gather on other nodes to make room.
    floating = asked == "exclusive" and any(len(mask) > 1 for mask in masks(beside).values())
    assert floating or place(host, request, placement, count + 1, size, asked) != ""


def test_the_room_of_an_empty_host() -> None:
    found = with_sizes(capacity(snapshot(HOST), Request()), (1, 4, 16))
    assert (found.host, found.strategy, found.mode) == ("compute1", "shared-pool", None)
    shared, local = of(found, "shared-pool"), of(found, "numa-local")
    assert (shared.within_node, shared.free_vcpus, dict(shared.guests)) == (False, 24, {1: 24, 4: 6, 16: 1})
    assert (local.within_node, local.free_vcpus, dict(local.guests)) == (True, 24, {1: 24, 4: 6, 16: 0})
    assert [(node.node, str(node.cpus), node.free_vcpus, dict(node.guests)) for node in local.nodes] == [
        (0, "4-15", 12, {1: 12, 4: 3, 16: 0}),
        (1, "20-31", 12, {1: 12, 4: 3, 16: 0}),
    ]
    assert {node.memory_kib for node in local.nodes} == {64 * GIB}
    assert of(found, "isolated").why == "no isolated CPU is free"


def test_a_floating_guest_takes_its_share_of_each_node() -> None:
    host = snapshot(HOST, [guest(1, 8, HOST.online)])
    found = capacity(host, Request())
    assert of(found, "shared-pool").free_vcpus == 16
    assert [node.free_vcpus for node in of(found, "shared-pool").nodes] == [8, 8]
    local = capacity(host, Request("numa-local"))
    assert sorted(node.free_vcpus for node in of(local, "numa-local").nodes) == [4, 12]
    assert [node.free_vcpus for node in of(local, "shared-pool").nodes] == [4, 12]


def test_a_part_of_a_free_cpu_is_no_room_for_a_vcpu() -> None:
    """Seven vCPUs that float over two nodes leave eight CPUs and a half of each."""
    host = snapshot(HOST, [guest(1, 7, HOST.online)])
    shared = of(with_sizes(capacity(host, Request()), (17, 18)), "shared-pool")
    assert (shared.free_vcpus, dict(shared.guests)) == (17, {17: 1, 18: 0})
    assert [node.free_vcpus for node in shared.nodes] == [8, 8]


@pytest.mark.parametrize(
    ("strategy", "free"), [("shared-pool", [8, 8]), ("numa-local", [4, 12]), ("exclusive", [4, 12])]
)
def test_exclusive_leaves_guests_that_float_a_cpu_for_each_vcpu(strategy: str, free: list[int]) -> None:
    host = snapshot(HOST, [guest(1, 8, HOST.online)])
    found = of(with_sizes(capacity(host, Request(strategy)), (8,)), "exclusive")
    assert (found.within_node, [node.free_vcpus for node in found.nodes]) == (True, free)


def test_offline_cpus_are_no_room_and_take_no_share_of_a_guest() -> None:
    """The kernel keeps offline CPUs in the affinity of a thread, which runs on the online ones alone."""
    top = plain(32, 2, offline="24-31")
    host = snapshot(top, [guest(1, 8, cpus("0-31"), excluded=True)])
    found = of(capacity(host, Request()), "shared-pool")
    assert [(str(node.cpus), node.free_vcpus) for node in found.nodes] == [("4-15", 8), ("18-23", 4)]
    assert found.free_vcpus == 12


def test_an_overcommitted_host_has_no_room() -> None:
    host = snapshot(HOST, [guest(number, 16, HOST.online) for number in range(3)])
    assert of(with_sizes(capacity(host, Request()), (1,)), "shared-pool").guests == {1: 0}


@pytest.mark.parametrize(("smt", "free"), [("prefer", [4, 8]), ("isolate", [0, 4]), ("require", [4, 8])])
def test_isolated_cpus_count_as_smt_allows(smt: str, free: list[int]) -> None:
    """With isolate the guest of two cores gets four."""
    top = interleaved(16, isolated="8-15,24-31")
    host = snapshot(top, [guest(1, 4, top.online, pins=["8", "24", "10", "26"])])
    found = of(capacity(host, Request("isolated", smt=smt)), "isolated")
    assert [node.free_vcpus for node in found.nodes] == free
    assert (found.within_node, found.free_vcpus) == (True, sum(free))


def test_live_partitions_do_not_tell_their_room() -> None:
    found = capacity(snapshot(HOST), Request("isolated", isolation="live"))
    assert "live partitions" in of(found, "isolated").why
    assert (
        of(found, "shared-pool").why
        == "the host's strategy makes live partitions, which leave no CPU for another strategy"
    )


@pytest.mark.parametrize(
    ("host", "request_", "why"),
    [
        (snapshot(HOST, dedicated=cpus("0-31")), Request(), "no CPU is left"),
        (snapshot(HOST), Request(housekeeping="0-99"), "32-99 are absent"),
        (snapshot(HOST, nova=NovaConf(("nova.conf",), error="denied")), Request(), "cannot determine which CPUs Nova"),
        (snapshot(HOST), Request("isolated"), "no guest needs one; a plan with a guest says how to isolate CPUs"),
        (snapshot(HOST, [guest(1, 1, HOST.online)]), Request(guests=("g1",)), "the policy names its guests"),
    ],
    ids=["nothing-left", "absent", "nova-unknown", "blocked", "named"],
)
def test_where_nothing_can_be_placed_each_strategy_says_why(host: Snapshot, request_: Request, why: str) -> None:
    found = with_sizes(capacity(host, request_), (1,))
    assert [each.strategy for each in found.strategies] == sorted((*STRATEGIES, "optimal"))
    for each in found.strategies:
        assert why in each.why
        assert (each.free_vcpus, each.guests) == (0, {1: 0})


def test_an_unknown_strategy() -> None:
    with pytest.raises(NotFound):
        capacity(snapshot(HOST), Request("fast"))


def test_a_capacity_survives_json() -> None:
    found = with_sizes(capacity(snapshot(HOST), Request()), (1, 2))
    assert codec.load(Capacity, codec.dump(found)) == found
