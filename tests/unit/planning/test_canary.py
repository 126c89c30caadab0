"""The part of a plan that a policy probes first."""

from typing import get_args

import pytest
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import make_plan

from pinner.model.change import AffinityChange, Target, TargetKind, ThreadMask
from pinner.model.request import Request
from pinner.model.trial import ChangeKind, change_kind, without_names
from pinner.planning.canary import canary_plan, untested
from pinner.planning.planner import plan_from_placement

ALL = cpus("0-15")
GUESTS = [guest(number, 2, ALL) for number in (1, 2, 3)]
HOST = snapshot(plain(16), GUESTS, [process(500, 50.0, "0-15", "0-15")])
PLAN = plan_from_placement(HOST, "s", Request(), None)
EVERY = {change.target.key for change in PLAN.changes}


def moved(plan):
    """The guests and processes that a plan changes."""
    return {change.target.owner for change in plan.changes}


def kinds(plan):
    return {change_kind(change.target) for change in plan.changes}


@pytest.mark.parametrize("target", get_args(TargetKind))
def test_each_target_has_a_kind_of_change(target):
    assert change_kind(Target(target, "owner", None, "name")) in get_args(ChangeKind)


def test_the_plan_of_this_test_moves_all_guests_and_a_process():
    assert moved(PLAN) == {each.uuid for each in GUESTS} | {"500"}


def test_the_canary_is_the_busiest_guest_and_the_processes_move_with_it():
    uses = {GUESTS[0].uuid: 10.0, GUESTS[1].uuid: 90.0, GUESTS[2].uuid: 50.0}
    assert moved(canary_plan(PLAN, EVERY, uses, None, HOST)) == {GUESTS[1].uuid, "500"}


@pytest.mark.parametrize("uses", [{}, {each.uuid: 5.0 for each in GUESTS}])
def test_of_equally_busy_guests_the_first_by_uuid_is_the_canary(uses):
    assert moved(canary_plan(PLAN, EVERY, uses, None, HOST)) == {min(each.uuid for each in GUESTS), "500"}


def test_the_plan_of_a_canary_has_an_id_of_its_own_and_names_what_waits():
    one = canary_plan(PLAN, EVERY, {GUESTS[0].uuid: 1.0}, None, HOST)
    other = canary_plan(PLAN, EVERY, {GUESTS[1].uuid: 1.0}, None, HOST)
    assert len({PLAN.id, one.id, other.id}) == 3
    assert one == canary_plan(PLAN, EVERY, {GUESTS[0].uuid: 1.0}, None, HOST)
    why = {left.target.owner for left in one.skipped if left.why == "the plan is probed on one guest first"}
    assert why == {GUESTS[1].uuid, GUESTS[2].uuid}


def test_only_what_is_untested_is_probed():
    assert untested(PLAN, ("guests", "processes")) == ()
    assert {change.target.owner for change in untested(PLAN, ("guests",))} == {"500"}
    processes = {change.target.key for change in untested(PLAN, ("guests",))}
    assert moved(canary_plan(PLAN, processes, {GUESTS[0].uuid: 1.0}, None, HOST)) == {"500"}
    guests = {change.target.key for change in untested(PLAN, ("processes",))}
    assert moved(canary_plan(PLAN, guests, {GUESTS[2].uuid: 1.0}, None, HOST)) == {GUESTS[2].uuid}


def test_with_a_change_of_the_host_itself_all_changes_are_probed_together():
    host = AffinityChange(Target("workqueue", "", None, "unbound kernel work"), (), cpus("0"), "so")
    plan = make_plan("plan-1", "s", (*PLAN.changes, host))
    assert untested(plan, ("guests", "processes")) == plan.changes
    assert untested(plan, ("guests", "processes", "host")) == ()
    probed = {change.target.key for change in plan.changes}
    assert canary_plan(plan, probed, {GUESTS[0].uuid: 1.0}, None, HOST).changes == plan.changes


def test_guests_that_swap_their_only_cpus_are_probed_together():
    def swap(each, now, then):
        target = Target("vcpu", each.uuid, 0, each.name)
        return AffinityChange(target, (ThreadMask(int(now) + 100, 5, cpus(now)),), cpus(then), "so")

    changes = (swap(GUESTS[0], "1", "2"), swap(GUESTS[1], "2", "1"))
    plan = make_plan("plan-1", "s", changes)
    probed = {change.target.key for change in changes}
    assert canary_plan(plan, probed, {}, None, HOST).changes == changes
    third = AffinityChange(Target("vcpu", GUESTS[2].uuid, 0, "g3"), (ThreadMask(109, 5, ALL),), cpus("5"), "so")
    plan = make_plan("plan-1", "s", (*changes, third))
    assert canary_plan(plan, {*probed, third.target.key}, {}, None, HOST).changes == (third,)


def test_the_names_of_a_request_do_not_make_a_new_kind():
    named = Request("numa-local", ("g1",), ("logshipd",), "0-3", excluded_guests=("g2",), excluded_processes=("sshd",))
    assert without_names(named) == Request("numa-local", housekeeping="0-3")
