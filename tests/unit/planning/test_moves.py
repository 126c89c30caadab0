"""Guests that move because of new guests: how many may, what each gains, and in which order the changes are made."""

from dataclasses import replace
from itertools import pairwise

import pytest
from support.hosts import applied, cpus, guest, plain, snapshot, with_caches
from support.values import make_change

from pinner.model.change import AffinityChange, Target, ThreadMask, contiguous, group_of
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.changes import exchanging, ranks
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

CACHES = with_caches(plain(18, isolated="2-17"), "0-1", "2-5", "6-9", "10-13", "14-17")
"""Isolated CPUs 2-17 with four level-3 caches: 2-5, 6-9, 10-13 and 14-17."""
FLOOR = cpus("0-1")


def pinned(number: int, *on: str) -> Guest:
    return guest(number, len(on), FLOOR, pins=on, memory={})


def full() -> Snapshot:
    """Two CPUs are free in the first cache and two in the second one; g5 has come and needs four."""
    guests = [pinned(1, "2", "3"), pinned(2, "6", "7"), pinned(3, "10", "11", "12", "13"), pinned(4, "14", "15", "16")]
    return snapshot(CACHES, [*guests, guest(5, 4, FLOOR, memory={})])


def placed(host: Snapshot, request: Request) -> Placement:
    """The recorded placement of the guests that are pinned."""
    before = replace(host, guests=tuple(each for each in host.guests if each.name != "g5"))
    return record(plan_from_placement(before, "s", request, None), before, None)


def moved(made: Plan) -> set[str]:
    return {change.target.name for change in made.changes if change.target.kind == "vcpu"}


def test_a_guest_moves_where_that_improves_the_objective():
    request = Request("isolated")
    made = plan_from_placement(full(), "s", request, placed(full(), request))
    (move,) = made.moves
    assert move.guest.name in {"g1", "g2"}
    assert [(term.name, term.before, term.after) for term in move.terms] == [("extra_l3", 1, 0)]
    assert moved(made) == {"g5", move.guest.name}
    assert made.objective.term("extra_l3").after == 0


def test_two_guests_move_together_where_neither_gains_alone():
    """Two caches have two free CPUs each, and two guests of one vCPU each. Only both guests of a cache make room."""
    small = [pinned(number, cpu) for number, cpu in ((1, "2"), (2, "3"), (3, "6"), (4, "7"))]
    others = [pinned(6, "10", "11", "12", "13"), pinned(7, "14", "15", "16", "17")]
    host = snapshot(CACHES, [*small, guest(5, 4, FLOOR, memory={}), *others])
    request = Request("isolated")
    made = plan_from_placement(host, "s", request, placed(host, request))
    assert {move.guest.name for move in made.moves} in ({"g1", "g2"}, {"g3", "g4"})
    assert {(term.name, term.before, term.after) for move in made.moves for term in move.terms} == {("extra_l3", 1, 0)}
    assert not exchanging(made.changes)
    alone = replace(request, moves=1)
    assert not plan_from_placement(host, "s", alone, placed(host, request)).moves


def test_a_second_plan_after_a_move_changes_nothing():
    request = Request("isolated")
    placement = placed(full(), request)
    made = plan_from_placement(full(), "s", request, placement)
    after = applied(full(), made)
    for again in (plan_from_placement(after, "s", request, record(made, full(), placement)), plan(after, "s", request)):
        assert (again.changes, again.moves) == ((), ())


def test_no_guest_moves_where_the_request_allows_none():
    request = Request("isolated", moves=0)
    made = plan_from_placement(full(), "s", request, placed(full(), request))
    assert (moved(made), made.moves) == ({"g5"}, ())
    assert made.objective.term("extra_l3").after == 1


def test_no_guest_moves_without_a_new_guest():
    """g1 spans two caches, but it is where it was recorded."""
    request = Request("isolated")
    host = snapshot(CACHES, [pinned(1, "2", "6")])
    placement = record(plan_from_placement(host, "s", request, None), host, None)
    assert (plan_from_placement(host, "s", request, placement).moves, moved(plan(host, "s", request))) == ((), set())


def test_no_guest_moves_where_that_gains_nothing():
    request = Request("isolated", weights={"extra_l3": 0})
    made = plan_from_placement(full(), "s", request, placed(full(), request))
    assert (moved(made), made.moves) == ({"g5"}, ())


@pytest.mark.parametrize(("moves", "unplaced"), [(0, 1), (1, 0), (2, 0)])
def test_a_guest_that_makes_room_counts_as_a_move(moves, unplaced):
    top = plain(16, nodes=2, isolated="2-7,10-15")
    request = Request("isolated", moves=moves)
    host = snapshot(top, [pinned(1, "2", "3", "4", "5"), pinned(2, "10", "11"), pinned(3, "12", "13")])
    placement = record(plan_from_placement(host, "s", request, None), host, None)
    made = plan_from_placement(
        replace(host, guests=(*host.guests, guest(4, 4, FLOOR, memory={}))), "s", request, placement
    )
    assert len(made.unplaced) == unplaced
    assert [(move.guest.name, move.terms) for move in made.moves] == [("g2", ())] * (1 - unplaced)


@pytest.mark.parametrize("recorded", [True, False])
def test_no_guest_loses_its_place_to_smaller_guests(recorded):
    request = Request("isolated")
    host = snapshot(plain(6, isolated="2-3"), [pinned(1, "2", "3")])
    placement = record(plan_from_placement(host, "s", request, None), host, None) if recorded else None
    crowded = replace(host, guests=(*host.guests, guest(2, 1, FLOOR, memory={}), guest(3, 1, FLOOR, memory={})))
    made = plan_from_placement(crowded, "s", request, placement)
    assert [left.target.name for left in made.unplaced] == ["g2", "g3"]
    assert (moved(made), made.moves) == (set(), ())


@pytest.mark.parametrize("strategy", ["isolated", "shared-pool"])
def test_a_guest_whose_cpus_are_lost_to_another_owner_is_no_move(strategy):
    """g2 is excluded and is now pinned to a CPU of g1; no guest is new. shared-pool allocates no isolated CPU."""
    request = Request(strategy, moves=0)
    host = snapshot(CACHES, [pinned(1, "2", "3")])
    placement = record(plan_from_placement(host, "s", Request("isolated"), None), host, None)
    taken = replace(host, guests=(*host.guests, replace(pinned(2, "2"), excluded=True)))
    made = plan_from_placement(taken, "s", request, placement if strategy == "isolated" else None)
    assert (moved(made), made.moves) == ({"g1"}, ())


def test_a_guest_that_moves_leaves_its_cpus_before_the_new_guest_gets_them():
    request = Request("isolated")
    made = plan_from_placement(full(), "s", request, placed(full(), request))
    (move,) = made.moves
    order = [change.target.owner for change in contiguous(made.changes) if change.target.kind == "vcpu"]
    assert order[0] == move.guest.owner
    assert exchanging(made.changes) == ()


def test_the_new_guest_waits_for_the_moved_one_also_where_the_host_lists_it_first():
    request = Request("isolated")
    host = full()
    *others, newcomer = host.guests
    first = replace(newcomer, uuid=newcomer.uuid.replace("5", "0"))
    made = plan_from_placement(replace(host, guests=(first, *others)), "s", request, placed(host, request))
    (move,) = made.moves
    order = list(dict.fromkeys(change.target.owner for change in made.changes if change.target.kind == "vcpu"))
    assert order == [move.guest.owner, first.uuid]
    in_groups = [change.target.owner for change in contiguous(made.changes) if change.target.kind == "vcpu"]
    assert list(dict.fromkeys(in_groups)) == order


@pytest.mark.parametrize("moves", [-1, 101, 1.5])
def test_a_wrong_number_of_moves_is_refused(moves):
    with pytest.raises(Invalid, match=f"moves: {moves} is not valid: a number of guests from 0 to 100"):
        Request(moves=moves)


def vcpu(owner: str, number: int, before: str, after: str) -> AffinityChange:
    return AffinityChange(Target("vcpu", owner, number, owner), (ThreadMask(1, 1, cpus(before)),), cpus(after), "why")


def test_guests_are_ordered_by_the_cpus_that_they_leave():
    changes = (vcpu("c", 0, "3", "2"), vcpu("b", 0, "2", "1"), vcpu("a", 0, "1", "9"), vcpu("d", 0, "0-9", "3"))
    rank = ranks(changes)
    order = sorted(changes, key=lambda change: rank[change.target.owner])
    assert [change.target.owner for change in order] == ["a", "b", "c", "d"]
    taken = {"1", "2", "3"}
    for change in order:
        assert str(change.after) not in taken
        taken.discard(str(change.before[0].cpus))
    assert exchanging(changes) == ()


def test_guests_that_exchange_cpus_have_no_order():
    changes = (vcpu("a", 0, "1", "2"), vcpu("b", 0, "2", "1"), vcpu("c", 0, "3", "4"))
    assert [target.owner for target in exchanging(changes)] == ["a", "b"]


def test_the_vcpus_of_one_guest_may_exchange_their_cpus():
    assert exchanging((vcpu("a", 0, "1", "2"), vcpu("a", 1, "2", "1"))) == ()


def test_groups_of_changes_keep_the_order_of_their_vcpus():
    emulator = AffinityChange(Target("emulator", "b", None, "b"), (ThreadMask(2, 1, cpus("0")),), cpus("1"), "why")
    changes = (make_change(), emulator, vcpu("a", 0, "1", "3"), vcpu("b", 0, "2", "1"))
    groups = [group_of(change.target) for change in contiguous(changes)]
    assert [group.owner for group in groups] == ["100", "a", "b", "b"]
    assert all(one == other or one not in groups[groups.index(other) :] for one, other in pairwise(groups))
