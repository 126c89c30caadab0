"""RPS inside guests as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Invalid, Refused
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.snapshot import Snapshot
from pinner.model.states import GuestCpus
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.planning.settings.inside.misfits import misfits

WITH = Request(remedies=("guest-rps",))
BOOT = "11111111-2222-3333-4444-555555555555"
GUESTS = [hosts.guest(number, 4, cpus("0-15")) for number in (1, 2, 3)]
OFF = GuestQueue("eth0", 2, 0, cpus(""))
CHOSEN = GuestQueue("eth1", 3, 0, cpus("2"))
FOUND = (
    GuestRps(GUESTS[0].uuid, "g1", BOOT, cpus("0-3"), (OFF, CHOSEN)),
    GuestRps(GUESTS[1].uuid, "g2", unread="it has no agent"),
    GuestRps(GUESTS[2].uuid, "g3", BOOT, cpus("0-1")),
)


def host(found=FOUND, guests=GUESTS):
    return hosts.snapshot(hosts.plain(16, 2), guests, guest_rps=found)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): each for each in made.changes if each.target.kind == "guest_rps"}


def after(taken, made):
    given = {each.target.key: each.after.vcpus for each in changed(made).values()}
    found = tuple(
        replace(each, queues=tuple(replace(q, vcpus=given.get(each.target(q).key, q.vcpus)) for q in each.queues))
        for each in taken.guest_rps
    )
    return replace(hosts.applied(taken, made), guest_rps=found)


def test_the_inside_of_guests_comes_last():
    """Each change waits for the answers of a guest."""
    taken = replace(host(), sysctls={"vm.swappiness": 60})
    made = plan(taken, Request(remedies=("guest-rps", "sysctls")))
    kinds = [each.target.kind for each in made.changes]
    assert (kinds[0], kinds[-1], len(set(kinds)) > 2) == ("sysctl", "guest_rps", True)


def test_a_queue_without_rps_gets_all_vcpus_and_a_second_plan_changes_nothing():
    made = plan(host())
    assert {name: str(each.after) for name, each in changed(made).items()} == {"guest g1 eth0 rps rx-0": "0-3"}
    assert [each.why for each in made.skipped if "RPS" in each.why] == ["its RPS stays: it has no agent"]
    assert [each for each in made.warnings if "inside" in each] == [
        "guest g1: this changes the inside of the guest, until the guest restarts"
    ]
    assert changed(plan(after(host(), made))) == {}
    assert codec.load(Plan, codec.dump(made)) == made
    assert codec.load(Snapshot, codec.dump(host())) == host()


def test_the_warning_has_the_whole_name_of_a_guest_with_a_space_in_it():
    named = replace(FOUND[0], name="web server 1")
    made = plan(host((named, *FOUND[1:])))
    assert "guest web server 1: this changes the inside of the guest, until the guest restarts" in made.warnings


def test_without_the_option_or_the_permission_nothing_changes():
    assert changed(plan(host(), Request())) == {}
    with pytest.raises(Invalid, match="guest_agents = true"):
        plan(host(None))


@pytest.mark.parametrize(
    ("request_", "guests"),
    [
        (replace(WITH, guests=("g2",)), GUESTS),
        (replace(WITH, excluded_guests=("g1",)), GUESTS),
        (WITH, [replace(GUESTS[0], excluded=True), *GUESTS[1:]]),
        (WITH, [replace(GUESTS[0], leaving=True), *GUESTS[1:]]),
    ],
    ids=["named", "excluded_guests", "pin-off", "leaving"],
)
def test_a_guest_that_pinner_leaves_alone_keeps_its_rps_and_the_agent_says_so_too(request_, guests):
    taken = host(guests=guests)
    assert changed(plan(taken, request_)) == {}
    (forged,) = changed(plan(host())).values()
    with pytest.raises(Refused, match=r"excluded|names other guests"):
        permit(replace(plan(taken, request_), changes=(forged,)), taken)


def test_a_policy_sets_lost_masks_again_also_after_the_guest_has_restarted():
    made = plan(host())
    placement, now = record(made, host(), None), after(host(), made)
    assert changed(planner.plan_from_placement(now, "s2", WITH, placement)) == {}
    for found, cause in ((FOUND[0], "unknown"), (replace(FOUND[0], boot=BOOT[::-1]), "restarted")):
        seen = replace(now, guest_rps=(found, *now.guest_rps[1:]))
        (drift,) = drifts(planner.plan_from_placement(seen, "s2", WITH, placement), placement, seen)
        assert (str(drift.target), drift.cause) == ("guest g1 eth0 rps rx-0", cause)


def test_a_guest_that_was_seen_while_it_started_has_restarted_and_another_one_has_arrived():
    made = plan(host())
    placement, now = record(made, host(), None), after(host(), made)
    starting = replace(now, guest_rps=(replace(FOUND[0], queues=(), unread="not connected"), *now.guest_rps[1:]))
    meanwhile = record(planner.plan_from_placement(starting, "s2", WITH, placement), starting, placement)
    new = GuestRps(GUESTS[1].uuid, "g2", BOOT, cpus("0-3"), (OFF,))
    seen = replace(now, guest_rps=(replace(FOUND[0], boot=BOOT[::-1]), new, FOUND[2]))
    again = planner.plan_from_placement(seen, "s3", WITH, meanwhile)
    assert {each.target.name: each.cause for each in drifts(again, meanwhile, seen)} == {
        "g1 eth0": "restarted",
        "g2 eth0": "arrived",
    }
    recorded = [each.target for each in record(again, seen, meanwhile).placed if each.target.kind == "guest_rps"]
    assert {(each.name, each.owner.split(" ")[1]) for each in recorded} == {
        ("g1 eth0", BOOT[::-1]), ("g1 eth1", BOOT[::-1]), ("g2 eth0", BOOT),
    }  # fmt: skip


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize(
    ("queue", "before", "vcpus", "why"),
    [
        (OFF, "", "0", "by what the guest says now, a plan gives it '0-3', not '0'"),
        (CHOSEN, "2", "0-3", "it has '2' now, and keeps that"),
    ],
)
def test_the_agent_makes_no_other_changes(queue, before, vcpus, why):
    made = plan(host())
    (change,) = changed(made).values()
    forged = replace(
        change, target=FOUND[0].target(queue), before=GuestCpus(cpus(before)), after=GuestCpus(cpus(vcpus))
    )
    assert misfits(replace(made, changes=(forged,)), host()) == {forged.target: why}
