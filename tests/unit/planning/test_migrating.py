"""A guest whose migration has not ended is skipped, and placed afterwards."""

from dataclasses import replace

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.plan.request import Request
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

ALL = cpus("0-7")
REQUEST = Request("shared-pool", housekeeping="0", emulator="1")


def host(state):
    return snapshot(plain(8), [replace(guest(1, 2, ALL), state=state), guest(2, 2, ALL)])


def test_a_plan_skips_the_guest_with_the_reason_and_places_the_others():
    made = plan(host("migrating"), "s", REQUEST)
    assert [(each.target.name, each.why) for each in made.skipped] == [("g1", "its migration has not ended")]
    assert {want.target.name for want in made.wanted} == {"g2"}
    assert made.blocked == ""


def test_a_plan_that_names_the_guest_skips_it():
    made = plan(host("migrating"), "s", replace(REQUEST, guests=("g1",)))
    assert [each.why for each in made.skipped] == ["its migration has not ended"]
    assert made.changes == ()


def test_the_next_plan_places_the_guest_when_the_migration_has_ended():
    before = host("migrating")
    placement = record(plan(before, "s", REQUEST), before, None)
    made = plan_from_placement(host("running"), "s", REQUEST, placement)
    assert {want.target.name for want in made.wanted} == {"g1", "g2"}
    assert {change.target.name for change in made.changes} >= {"g1"}
