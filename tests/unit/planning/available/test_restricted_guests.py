"""A guest whose definition has <vcpu cpuset> is placed inside, with QEMU's own threads, unless the request releases
it."""

from dataclasses import replace

import pytest
from data.field import own_cpus
from data.field.pins import absent_cpus, confined, low_cpus, nothing_left, one_cpu, one_node
from support.hosts import applied, cpus, guest, plain, process, snapshot

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Refused
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import OvsDpdk, OvsMasks
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

FLOATING = ("shared-pool", "numa-local")


def where(made: Plan, guest_name: str = "g1", *, vcpus: bool = True) -> CpuSet:
    wanted = (want for want in made.wanted if want.target.name == guest_name)
    return union(want.cpus for want in wanted if (want.target.kind == "vcpu") == vcpus)


@pytest.mark.parametrize("strategy", FLOATING)
def test_a_confined_guest_stays_inside_and_the_sets_of_the_others_stay_outside(strategy):
    made = plan(confined.HOST, "s", Request(strategy))
    assert (made.roles.housekeeping, made.roles.emulator) == (confined.HOUSEKEEPING, confined.EMULATOR)
    assert where(made) == where(made, vcpus=False) == confined.INSIDE
    assert {change.target.owner for change in made.changes}.isdisjoint({confined.HOST.guests[0].uuid})
    reasons = {want.target.kind: want.reason for want in made.wanted if want.target.name == "g1"}
    assert reasons["vcpu"] == "the guest has CPUs 4-7 from its definition (<vcpu cpuset>)"
    assert reasons["emulator"] == (
        f"{reasons['vcpu']}, and so no CPU of the emulator set: QEMU's own threads share the vCPUs'"
    )
    assert plan(applied(confined.HOST, made), "s", Request(strategy)).changes == ()


@pytest.mark.parametrize("strategy", FLOATING)
def test_the_lowest_cpus_are_left_to_a_guest_that_is_confined_to_them(strategy):
    made = plan(low_cpus.HOST, "s", Request(strategy))
    assert (made.roles.housekeeping, made.roles.emulator) == (low_cpus.HOUSEKEEPING, low_cpus.EMULATOR)
    assert (made.roles.vcpu, where(made)) == (low_cpus.VCPU, low_cpus.INSIDE)


@pytest.mark.parametrize("strategy", FLOATING)
def test_a_guest_of_one_node_stays_there(strategy):
    made = plan(one_node.HOST, "s", Request(strategy))
    assert (where(made), where(made, vcpus=False)) == (one_node.VCPUS, one_node.EMULATOR)
    assert [term.after for term in made.objective.terms if term.name in ("extra_nodes", "remote_memory")] == [0, 0]


def test_isolated_pins_inside_and_leaves_a_guest_without_an_emulator_cpu_alone():
    top, inside = plain(32, isolated="8-31"), cpus("4-11")
    fits = guest(1, 2, inside, restriction=inside)
    lacks = guest(2, 2, cpus("28-31"), restriction=cpus("28-31"))
    made = plan(snapshot(top, [fits, lacks]), "s", Request("isolated", housekeeping="0-3", emulator="4-7"))
    assert (where(made), where(made, vcpus=False)) == (cpus("8-9"), cpus("4-7"))
    assert [(left.label, left.why) for left in made.unplaced] == [
        (
            "guest g2",
            "the guest has CPUs 28-31 from its definition (<vcpu cpuset>), where the emulator set (4-7) has no CPU; "
            "to lift the restriction, name the guest in released_guests (--release-cpuset)",
        )
    ]


@pytest.mark.parametrize("strategy", ["exclusive", "isolated", "optimal"])
@pytest.mark.parametrize(("inside", "vcpus", "sets"), own_cpus.CASES)
@pytest.mark.parametrize("others", [4, 9])
def test_the_automatic_emulator_set_has_a_core_inside(inside, vcpus, sets, others, strategy):
    host = own_cpus.host(inside, vcpus, others)
    request = Request(strategy, isolation="boot" if strategy == "exclusive" else "live")
    made = plan(host, "s", request)
    assert (str(made.roles.housekeeping), str(made.roles.emulator)) == sets
    assert not made.unplaced and len(where(made)) == vcpus
    assert (where(made) | where(made, vcpus=False)) <= cpus(inside)
    require_permitted(identified(made, host)[0], host, Past(), migrate_memory=False)
    assert plan(applied(host, made), "s", Request("exclusive")).changes == () or strategy != "exclusive"


@pytest.mark.parametrize("strategy", ["exclusive", "isolated"])
def test_a_guest_whose_vcpus_need_every_cpu_inside_gets_a_reason_with_a_cure(strategy):
    request = Request(strategy, isolation="live" if strategy == "isolated" else "boot")
    made = plan(own_cpus.host("8-15", 8), "s", request)
    assert [left.why for left in made.unplaced] == [own_cpus.WHY_FULL]
    assert not plan(own_cpus.host("8-15", 8), "s", replace(request, released_guests=("g1",))).unplaced


@pytest.mark.parametrize("strategy", FLOATING)
def test_a_guest_on_one_cpu_of_two_stays_there(strategy):
    made = plan(one_cpu.HOST, "s", Request(strategy))
    assert (made.roles.housekeeping, where(made), where(made, vcpus=False)) == (
        one_cpu.HOUSEKEEPING,
        one_cpu.REST,
        one_cpu.REST,
    )


@pytest.mark.parametrize("strategy", FLOATING)
def test_without_a_common_cpu_the_plan_names_every_set(strategy):
    made = plan(nothing_left.HOST, "s", Request(strategy))
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", nothing_left.WHY)]
    assert where(made, "g2")
    made = plan(nothing_left.IN_A_SLICE, "s", Request(strategy))
    assert [left.why.split("set (")[0] for left in made.unplaced] == [nothing_left.WHY_IN_A_SLICE]
    assert f"set ({made.roles.vcpu}) has no CPU" in made.unplaced[0].why


@pytest.mark.parametrize("strategy", FLOATING)
def test_absent_cpus_are_named_and_the_others_used(strategy):
    made = plan(absent_cpus.HOST, "s", Request(strategy))
    assert where(made) == absent_cpus.INSIDE
    assert not absent_cpus.OWNED & made.roles.cpus
    assert set(absent_cpus.WARNINGS) <= set(made.warnings)


def test_a_restriction_to_absent_cpus_alone_leaves_the_guest_unplaced():
    lost = snapshot(plain(4), [guest(1, 1, cpus("0-3"), restriction=cpus("9"))])
    made = plan(lost, "s", Request())
    assert [left.why for left in made.unplaced] == [
        "the guest has CPUs 9 from its definition (<vcpu cpuset>), where the vCPU set (2-3) has no CPU"
    ]


@pytest.mark.parametrize("strategy", FLOATING)
@pytest.mark.parametrize("name", ["g1", confined.HOST.guests[0].uuid])
def test_a_released_guest_is_placed_like_any_other(strategy, name):
    request = Request(strategy, released_guests=(name,))
    made = plan(confined.HOST, "s", request)
    mine, other = confined.HOST.guests
    free = replace(confined.HOST, guests=(replace(mine, restriction=CpuSet()), other))
    assert [(want.target, want.cpus) for want in made.wanted] == [
        (want.target, want.cpus) for want in plan(free, "s", Request(strategy)).wanted
    ]
    require_permitted(identified(made, confined.HOST)[0], confined.HOST, Past(), migrate_memory=False)


def test_a_released_guest_that_an_operator_pinned_is_placed_with_the_others():
    made = plan(absent_cpus.HOST, "s", Request(released_guests=("g2", "g9")))
    assert (where(made), where(made, "g2")) == (absent_cpus.INSIDE, made.roles.vcpu)
    assert 20 in made.roles.vcpu
    assert "released_guests names 'g9': libvirt knows no such guest now" in made.warnings


def test_the_agent_refuses_a_change_out_of_a_restriction():
    made = plan(confined.HOST, "s", Request(released_guests=("g1",)))
    forged = replace(made, request=Request())
    with pytest.raises(Refused, match=r"but the guest has CPUs 4-7 from its definition"):
        require_permitted(identified(forged, confined.HOST)[0], confined.HOST, Past(), migrate_memory=False)


@pytest.mark.parametrize("strategy", FLOATING)
def test_recorded_sets_that_leave_a_new_restricted_guest_no_cpu_are_made_anew(strategy):
    request = Request(strategy)
    before = snapshot(plain(32), [guest(1, 4, cpus("0-31"))])
    made = plan_from_placement(before, "s", request, None)
    placement, after = record(made, before, None), applied(before, made)
    later = replace(after, guests=(*after.guests, guest(2, 2, cpus("0-3"), restriction=cpus("0-3"))))
    again = plan_from_placement(later, "s", request, placement)
    assert (str(again.roles.vcpu), where(again, "g2"), again.unplaced) == ("0-3,12-31", cpus("0-3"), ())
    fits = replace(after, guests=(*after.guests, guest(2, 2, cpus("6-9"), restriction=cpus("6-9"))))
    again = plan_from_placement(fits, "s", request, placement)
    assert (again.roles, where(again, "g2")) == (made.roles, cpus("8-9"))


def test_recorded_sets_stay_where_new_ones_leave_a_restricted_guest_no_cpu_either():
    request = Request(housekeeping="0-3", emulator="4-7")
    before = snapshot(plain(32), [guest(1, 4, cpus("0-31"))])
    made = plan_from_placement(before, "s", request, None)
    later = replace(before, guests=(*before.guests, guest(2, 2, cpus("0-3"), restriction=cpus("0-3"))))
    again = plan_from_placement(later, "s", request, record(made, before, None))
    assert again.roles == made.roles
    assert [left.label for left in again.unplaced] == ["guest g2"]


def test_a_part_of_the_emulator_set_does_not_hide_the_present_housekeeping_set():
    """The guest's emulator is on 16 of 3-4,16,23. That is also all that node 1 would have of emulators beside a larger
    housekeeping set, 3-4,22-23."""
    dpdk, inside = OvsMasks(pmd=cpus("0-2,7-8,14,21"), lcore=cpus("16")), cpus("16,20,22")
    before = snapshot(
        plain(24, 2),
        [guest(1, 1, inside, restriction=inside)],
        [process(300, 40.0, "0-23")],
        ovs=OvsDpdk(dpdk, polling=dpdk.pmd),
        shared=cpus("1-21"),
    )
    made = plan(before, "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator)) == ("22", "3-4,16,23")
    again = plan(applied(before, made), "s", Request())
    assert (again.changes, again.roles) == ((), made.roles)
