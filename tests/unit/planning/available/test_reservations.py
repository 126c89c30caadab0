"""Plans reserve the isolated CPUs that they hand out: of two plans for the same CPUs, the later one is stale."""

from dataclasses import replace

import pytest
from support.hosts import KERNEL, applied, cpus, guest, interleaved, masked, plain, snapshot
from support.values import MEMBER

from pinner.agent import local
from pinner.model.change import PartPin
from pinner.model.cpuset import CpuSet
from pinner.model.errors import StalePlan
from pinner.model.guest.guest import Cgroup, Guest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.changes import require_free
from pinner.planning.placement import record
from pinner.planning.policy.backoff_counts import leave_out

pytestmark = pytest.mark.fault(53)

ISOLATED = plain(16, isolated="8-15")
FLOOR = cpus("0-7")
HOST = snapshot(ISOLATED, [guest(1, 2, FLOOR), guest(2, 2, FLOOR), guest(3, 2, FLOOR)])


def plan(host: Snapshot, *guests: str, **more: object) -> Plan:
    return planner.plan(host, "s", Request("isolated", guests=guests, **more))


def vcpus(host: Snapshot) -> list[CpuSet]:
    return [vcpu.thread.affinity for each in host.guests for vcpu in each.vcpus if vcpu.thread]


def test_of_two_plans_for_the_same_isolated_cpus_the_second_is_stale():
    one, other = plan(HOST, "g1"), plan(HOST, "g2")
    after = applied(HOST, one)
    with pytest.raises(StalePlan, match=r"CPUs 8-9 are in use by guest g1") as caught:
        require_free(other, after)
    assert caught.value.details["plan"] == other.id
    again = plan(after, "g2")
    require_free(again, after)
    taken = vcpus(applied(after, again))[:4]
    assert len(set(taken)) == 4


@pytest.mark.parametrize(("smt", "is_stale"), [("isolate", True), ("prefer", False)])
def test_a_plan_of_whole_cores_is_stale_where_another_guest_got_a_thread_of_one(smt, is_stale):
    """The plan gives CPU 4 to a vCPU; CPU 12 is the other thread of its core."""
    floor = cpus("0-3,8-11")
    host = snapshot(interleaved(8, 1, isolated="4-7,12-15"), [guest(1, 1, floor), guest(2, 1, floor)])
    made = plan(host, "g2", smt=smt)
    assert "4" in {str(change.after) for change in made.changes}
    pinned = masked(host, {host.guests[0].vcpus[0].thread.tid: cpus("12")})
    if not is_stale:
        require_free(made, pinned)
        return
    with pytest.raises(StalePlan, match="CPUs 12 are in use by guest g1"):
        require_free(made, pinned)


def test_a_plan_that_is_made_already_hands_out_nothing_again():
    """Another program has pinned a guest there since: the plan changes nothing about that."""
    one = plan(HOST, "g1")
    after = masked(applied(HOST, one), {HOST.guests[1].vcpus[0].thread.tid: cpus("8")})
    assert [str(mask) for mask in vcpus(after)[:3]] == ["8", "9", "8"]
    require_free(one, after)


def test_the_agent_refuses_such_a_plan():
    one, other = plan(HOST, "g1"), plan(HOST, "g2")
    with pytest.raises(StalePlan, match="g1"):
        local.admit(other, None, applied(HOST, one), None)
    local.admit(one, None, applied(HOST, one), None)


@pytest.mark.parametrize("smt", ["prefer", "isolate"])
def test_a_plan_of_all_guests_is_stale_too(smt):
    one, every = plan(HOST, "g3", smt=smt), plan(HOST, smt=smt)
    with pytest.raises(StalePlan, match="g3"):
        require_free(
            replace(every, changes=tuple(c for c in every.changes if c.target.name != "g3")), applied(HOST, one)
        )


def test_a_plan_is_stale_where_a_guest_that_it_left_unplaced_was_pinned_since():
    """Both plans were made of the same host. The one for all guests has no room for the widest guest."""
    host = replace(HOST, guests=(*HOST.guests, guest(4, 8, FLOOR)))
    every, wide = plan(host), plan(host, "g4")
    assert ([left.target.name for left in every.unplaced], wide.unplaced) == (["g4"], ())
    with pytest.raises(StalePlan, match="in use by guest g4"):
        require_free(every, applied(host, wide))


def test_an_unplaced_guest_that_was_pinned_before_the_plan_is_known_to_it():
    """There is no room for its vCPUs apart; the other guest gets the CPU that fewer of them have."""
    crowded = guest(1, 3, cpus("0-1"), pins=["2", "3", "3"])
    host = snapshot(plain(4, isolated="2-3"), [crowded, guest(2, 1, cpus("0-1"))])
    made = planner.plan(host, "s", Request("isolated", housekeeping="0", emulator="1"))
    assert [left.target.name for left in made.unplaced] == ["g1"]
    assert (str(made.contested), vcpus(applied(host, made))[-1]) == ("2", cpus("2"))
    require_free(made, host)


def test_of_two_plans_for_a_cpu_of_an_unplaced_guest_the_second_is_stale():
    """Both plans know that g1 is pinned there. The second one does not know that g2 got the CPU since."""
    floor = cpus("0-1")
    crowded = guest(1, 3, floor, pins=["2", "3", "3"])
    host = snapshot(plain(4, isolated="2-3"), [crowded, guest(2, 1, floor), guest(3, 1, floor)])
    one, other = (
        planner.plan(host, "s", Request("isolated", guests=("g1", name), housekeeping="0", emulator="1"))
        for name in ("g2", "g3")
    )
    assert [[str(plan.contested), plan.unplaced[0].target.name] for plan in (one, other)] == [["2", "g1"]] * 2
    require_free(one, host)
    with pytest.raises(StalePlan, match="CPUs 2 are in use by guest g2"):
        require_free(other, applied(host, one))


@pytest.mark.parametrize("excluded", [False, True])
def test_the_cpus_that_pinner_gave_to_another_guest_are_not_handed_out(excluded):
    """The metadata of g1 names its pins, and the plan is for g2, or g1 is excluded by now: both keep their CPUs."""
    placed = applied(HOST, plan(HOST, "g1"))
    first = placed.guests[0]
    pins = tuple(PartPin("vcpu", each.id, each.thread.affinity) for each in first.vcpus)
    now = replace(placed, guests=(replace(first, own_pins=pins, excluded=excluded), *placed.guests[1:]))
    made = plan(now, *(() if excluded else ("g2",)))
    require_free(made, now)
    taken = [str(mask) for mask in vcpus(applied(now, made))[:4]]
    assert taken == ["8", "9", "10", "11"]


def test_a_plan_may_swap_the_cpus_of_its_own_guests():
    placed = applied(HOST, plan(HOST, "g1", "g2"))
    swap = plan(HOST, "g1", "g2")
    after = {change.target.owner: change.after for change in swap.changes if change.target.kind == "vcpu"}
    others = dict(zip(after, reversed(after.values()), strict=True))
    swapped = tuple(
        replace(change, after=others[change.target.owner]) if change.target.kind == "vcpu" else change
        for change in swap.changes
    )
    require_free(replace(swap, changes=swapped), placed)


def test_a_second_apply_and_a_rebalance_are_not_stale():
    made = plan(HOST)
    after = applied(HOST, made)
    require_free(made, after)
    require_free(plan(after, rebalance=True), after)


def test_a_guest_that_the_plan_lists_as_unplaced_is_known_to_it():
    """g1 keeps the isolated CPUs of both nodes, and none is left for g2."""
    top = plain(8, 2, isolated="2,3,6,7")
    host = snapshot(top, [guest(1, 4, cpus("0-1"), pins=["2", "3", "6", "7"]), guest(2, 2, cpus("0-1"))])
    made = plan(host)
    assert [left.target.name for left in made.unplaced] == ["g2"]
    require_free(made, host)


def test_a_vcpu_in_back_off_is_known_to_the_plan():
    """Another program holds a vCPU of g1 on a CPU that is free otherwise: g2 is placed nevertheless."""
    first = plan(HOST, "g1")
    held = applied(HOST, first)
    request = Request("isolated", guests=("g1", "g2"))
    moved = next(change.target for change in first.changes if change.target.kind == "vcpu")
    thread = next(each.vcpus[moved.part].thread for each in held.guests if each.uuid == moved.owner)
    held = masked(held, {thread.tid: cpus("10")})
    placement = record(replace(first, request=request), HOST, None)
    made = planner.plan_from_placement(held, "s", request, placement)
    assert made.changes
    left = leave_out(made, {moved.key: "it waits"}, placement, held)
    require_free(left, held)
    reasons = {each.target.key: each.why for each in left.skipped}
    assert reasons.pop(moved.key) == "it waits"
    assert set(reasons.values()) <= {"it needs a CPU of a target that stays as it is"}


def test_floating_plans_hand_out_nothing():
    host = snapshot(plain(8), [guest(1, 2, cpus("0-7")), guest(2, 1, cpus("0-7"), pins=["7"])])
    require_free(planner.plan(host, "s", Request("numa-local", guests=("g1",))), host)


def test_live_partitions_reserve_their_cpus():
    def of(number: int) -> Guest:
        units = (Cgroup("machine.slice", MEMBER), Cgroup(f"machine.slice/g{number}.scope", MEMBER))
        return guest(number, 2, cpus("0-15"), cgroups=units)

    host = snapshot(plain(16, kernel=replace(KERNEL, cgroup="v2", partitions=True)), [of(1), of(2)])
    one, other = plan(host, "g1", isolation="live"), plan(host, "g2", isolation="live")
    assert not one.blocked
    with pytest.raises(StalePlan, match="g1"):
        require_free(other, applied(host, one))
