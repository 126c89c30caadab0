"""How many more guests of one shape fit: so many are really placed, and one more is not."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, applied, cpus, guest, interleaved, plain, snapshot
from support.made_up.anyhost import STRATEGIES, snapshots

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NoFit, NotFound
from pinner.model.machine.topology import HugePages
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.questions import GuestShape, NewGuests, ShapeRoom, with_sizes
from pinner.model.snapshot import Snapshot
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement
from pinner.planning.questions.capacity import capacity, shape_rooms
from pinner.planning.questions.whatif import with_guests

HOST = plain(32, 2)
"""Pools of 12 CPUs a node: 4-15 and 20-31; 64 GiB a node."""
ISOLATED = interleaved(16, isolated="4-15,20-31")


def rooms(found: tuple[ShapeRoom, ...]) -> dict[str, int]:
    return {each.strategy: each.guests for each in found if each.strategy in STRATEGIES}


def newcomers(made: Plan) -> dict[str, list[CpuSet]]:
    found: dict[str, list[CpuSet]] = {}
    for want in made.wanted:
        if want.target.kind == "vcpu" and want.target.name.startswith("new"):
            found.setdefault(want.target.name, []).append(want.cpus)
    return found


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (GuestShape(8), {"exclusive": 2, "shared-pool": 3, "numa-local": 2, "isolated": 0}),
        (GuestShape(4), {"exclusive": 6, "shared-pool": 6, "numa-local": 6, "isolated": 0}),
        (GuestShape(4, 16 * GIB), {"exclusive": 6, "shared-pool": 6, "numa-local": 6, "isolated": 0}),
        (GuestShape(4, 30 * GIB), {"exclusive": 4, "shared-pool": 4, "numa-local": 4, "isolated": 0}),
        (GuestShape(4, 32 * GIB), {"exclusive": 4, "shared-pool": 4, "numa-local": 4, "isolated": 0}),
        (GuestShape(4, 40 * GIB), {"exclusive": 2, "shared-pool": 3, "numa-local": 2, "isolated": 0}),
        (GuestShape(4, 70 * GIB), {"shared-pool": 1, "numa-local": 0, "isolated": 0, "exclusive": 0}),
        (GuestShape(13), {"exclusive": 1, "shared-pool": 1, "numa-local": 0, "isolated": 0}),
        (GuestShape(25), {"shared-pool": 0, "numa-local": 0, "isolated": 0, "exclusive": 0}),
        (GuestShape(1, GIB, 1 << 20), {"shared-pool": 0, "numa-local": 0, "isolated": 0, "exclusive": 0}),
    ],
)
def test_the_room_of_an_empty_host(shape, expected):
    assert rooms(shape_rooms(snapshot(HOST), Request(), shape)) == expected


def test_the_answer_says_why_one_more_does_not_fit():
    found = {
        each.strategy: each.why for each in shape_rooms(snapshot(HOST), Request("numa-local"), GuestShape(4, 40 * GIB))
    }
    assert "has 41943040 KiB of memory left for the guest; node 0 has the most, 25165824 KiB" in found["numa-local"]
    assert found["shared-pool"] == "the host has 134217728 KiB of memory left, and its guests would need 167772160 KiB"
    assert found["isolated"] == "no isolated CPU is free"
    crowded = {each.strategy: each.why for each in shape_rooms(snapshot(HOST), Request(), GuestShape(8))}
    assert crowded["shared-pool"] == "8.00 vCPUs more would share CPUs with others"


def test_free_huge_pages_are_the_room_for_guests_that_ask_for_them():
    pages = {0: 20, 1: 9}
    top = replace(HOST, nodes=tuple(replace(n, hugepages=(HugePages(1 << 20, 24, pages[n.id]),)) for n in HOST.nodes))
    found = rooms(shape_rooms(snapshot(top), Request("numa-local"), GuestShape(2, 4 * GIB, 1 << 20)))
    assert (found["numa-local"], found["shared-pool"]) == (7, 7)


@pytest.mark.parametrize(("smt", "expected"), [("prefer", 6), ("isolate", 2), ("require", 6)])
def test_isolated_cpus_count_as_smt_allows(smt, expected):
    found = rooms(shape_rooms(snapshot(ISOLATED), Request("isolated", smt=smt), GuestShape(4)))
    assert found["isolated"] == expected


def test_present_guests_take_their_cpus_and_memory():
    host = snapshot(HOST, [guest(1, 8, HOST.online, memory={0: 50 * GIB}, memory_kib=50 * GIB)])
    assert rooms(shape_rooms(host, Request("numa-local"), GuestShape(4, 20 * GIB)))["numa-local"] == 3


def test_offline_cpus_take_no_share_of_a_present_guest():
    """Eight vCPUs on 24 online CPUs use a third of each. The affinity of a thread keeps the offline ones."""
    top = plain(32, 2, offline="24-31")
    host = snapshot(top, [guest(1, 8, cpus("0-31"), excluded=True)])
    assert rooms(shape_rooms(host, Request(), GuestShape(1)))["shared-pool"] == 12


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (Request(guests=("g1",)), "the request names its guests"),
        (Request(housekeeping="0-99"), "32-99 are absent"),
        (Request("isolated"), "are not isolated: reboot with"),
    ],
)
def test_where_nothing_can_be_placed_each_strategy_says_why(request_, why):
    for each in shape_rooms(snapshot(HOST, [guest(1, 1, HOST.online)]), request_, GuestShape(1)):
        assert each.guests == 0
        assert why in each.why


@pytest.mark.parametrize("shape", [{"vcpus": 0}, {"vcpus": 9000}, {"vcpus": 1, "memory_kib": -1}])
def test_an_impossible_shape(shape):
    with pytest.raises(Invalid, match=f"{list(shape)[-1]}"):
        GuestShape(**shape)


def test_an_unknown_strategy():
    with pytest.raises(NotFound):
        shape_rooms(snapshot(HOST), Request("fast"), GuestShape(1))


def placed(host: Snapshot, request: Request, count: int, shape: GuestShape, strategy: str) -> bool:
    """Whether the planner places so many newcomers, beside the guests that the plan for the present ones placed."""
    before = plan(host, "s", request)
    placement = record(before, host, None)
    if not count:
        return True
    made = plan_from_placement(with_guests(host, [NewGuests(shape, count, strategy)]), "s", request, placement)
    found = newcomers(made)
    others = {want.target: want.cpus for want in made.wanted if want.target.kind == "vcpu"}
    if any(want.target.kind == "vcpu" and not others[want.target] <= want.cpus for want in before.wanted):
        return False
    if strategy in ("isolated", "exclusive") and any(len(mask) > 1 for masks in found.values() for mask in masks):
        return False
    overcommit = made.objective.term("overcommit").after - before.objective.term("overcommit").after
    return len(found) == count and overcommit < 1e-4


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(
    host=snapshots(),
    vcpus=st.integers(1, 4),
    gib=st.sampled_from([0, 1, 9, 40]),
    smt=st.sampled_from(["prefer", "isolate", "require"]),
)
def test_so_many_guests_are_placed_and_one_more_is_not(host, vcpus, gib, smt, strategy):
    request, shape = Request(strategy, smt=smt), GuestShape(vcpus, gib * GIB)
    try:
        made = plan(host, "s", request)
    except NoFit:
        assume(False)
    assume(not made.blocked)
    counted = {each.strategy: each for each in with_sizes(capacity(host, request), (vcpus,)).strategies}
    for room in shape_rooms(host, request, shape):
        # What the planner places, the arithmetic counts; but guests that float may gather beside exclusive ones.
        assert room.strategy == "exclusive" or room.guests <= counted[room.strategy].guests[vcpus]
        assert room.why
        if room.strategy != strategy:
            continue
        assert placed(host, request, room.guests, shape, strategy)
        if not gib:
            assert not placed(host, request, room.guests + 1, shape, strategy)


def test_new_guests_that_are_counted_are_placed_after_an_apply():
    """The same number fits before and after the plan for the present guests is applied."""
    host = snapshot(HOST, [guest(number, 3, HOST.online) for number in range(3)])
    request = Request("numa-local")
    made = plan(host, "s", request)
    assert Counter(rooms(shape_rooms(host, request, GuestShape(4, GIB)))) == Counter(
        rooms(shape_rooms(applied(host, made), request, GuestShape(4, GIB), record(made, host, None)))
    )
