"""The rule that proposes a re-pack, and the plan of one: a sequence of moves to CPUs that are free."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.hosts import NOON, applied, cpus, guest, plain, snapshot, with_caches
from support.values import make_plan

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.guest.guest import Guest
from pinner.model.plan.objective import compared, weighted
from pinner.model.plan.plan import Placement
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.moves import RepackRule, RepackWatch, pressure, refusal
from pinner.planning.placement import record
from pinner.planning.planner import plan_from_placement, repack

RULE = RepackRule(mark=4.0, after=timedelta(minutes=15), gain=0.25, pause=timedelta(hours=1))
CACHES = with_caches(plain(34, isolated="2-33"), "0-1", "2-9", "10-17", "18-25", "26-33")
"""Isolated CPUs 2-33 with four level-3 caches of eight CPUs each."""
REQUEST = Request("isolated")


def pinned(number: int, on: str) -> Guest:
    return guest(number, len(cpus(on)), cpus("0-1"), pins=[str(cpu) for cpu in cpus(on)], memory={})


def spread(*on: str) -> tuple[Snapshot, Placement]:
    """A host whose guests are pinned to these CPUs, and the recorded placement."""
    host = snapshot(CACHES, [pinned(number, each) for number, each in enumerate(on)])
    made = plan_from_placement(host, "s", REQUEST, None)
    return applied(host, made), record(made, host, None)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def test_a_dry_run_is_due_after_the_pressure_was_above_the_mark_for_a_while():
    watch = RepackWatch()
    for minute, value, due in ((0, 4.0, False), (14, 9.0, False), (15, 4.0, True), (16, 4.0, True)):
        watch = watch.observed(RULE, value, NOON + minutes(minute))
        assert watch.is_due(RULE, NOON + minutes(minute)) is due


def test_a_short_fall_below_the_mark_starts_the_time_anew():
    watch = RepackWatch().observed(RULE, 5.0, NOON).observed(RULE, 3.9, NOON + minutes(10))
    watch = watch.observed(RULE, 5.0, NOON + minutes(11))
    assert not watch.is_due(RULE, NOON + minutes(20))
    assert watch.is_due(RULE, NOON + minutes(26))


def test_a_dry_run_is_followed_by_a_pause():
    watch = RepackWatch().observed(RULE, 5.0, NOON).paused(RULE, NOON + minutes(15))
    assert not watch.is_due(RULE, NOON + minutes(74))
    assert watch.is_due(RULE, NOON + minutes(75))


def test_the_pressure_counts_the_asked_terms_by_their_weights():
    values = {"extra_nodes": 1, "shared_cores": 2, "extra_l3": 3, "remote_memory": 2048.0, "overcommit": 9.0}
    weights = weighted({"shared_cores": 2.0})
    assert pressure(compared({}, values, weights)) == 1 + 2 * 2 + 3 + 2
    assert pressure(compared({}, values, weights, frozenset(("extra_nodes",)))) == 1


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [(8, 6, ""), (8, 7, "it gains 1 of 8, less than 25%"), (8, 8, "no move of a guest gains")],
)
def test_a_re_pack_has_to_gain_a_quarter_of_its_tier(before, after, why):
    made = replace(make_plan(), objective=compared({"extra_l3": before}, {"extra_l3": after}, weighted()))
    assert refusal(RULE, made) == why


def test_a_re_pack_in_which_guests_exchange_cpus_is_not_proposed():
    def vcpu(name: str, before: str, after: str) -> AffinityChange:
        mask = ThreadMask(1, 1, cpus(before))
        return AffinityChange(Target("vcpu", name, 0, name), (mask,), cpus(after), "why")

    made = make_plan(changes=(vcpu("b", "1", "2"), vcpu("a", "2", "1"), vcpu("c", "3", "4")))
    made = replace(made, objective=compared({"extra_l3": 8}, {}, weighted()))
    assert refusal(RULE, made) == (
        "guests a, b exchange CPUs: there is no order in which each leaves its CPUs before another gets them"
    )


def test_a_re_pack_moves_guests_without_a_new_guest():
    host, placement = spread("2-5", "6-7,10-11", "18-21", "22-23,26-27")
    assert plan_from_placement(host, "s", REQUEST, placement).changes == ()
    made = repack(host, "s", REQUEST, placement)
    assert (made.objective.term("extra_l3").before, made.objective.term("extra_l3").after) == (2, 0)
    assert {move.guest.name for move in made.moves} == {"g1", "g3"}
    assert refusal(RULE, made) == ""
    after, recorded = applied(host, made), record(made, host, placement)
    assert plan_from_placement(after, "s", REQUEST, recorded).changes == ()
    assert repack(after, "s", REQUEST, recorded).changes == ()


@pytest.mark.parametrize(
    "on",
    [
        ("2-5", "6-7,10-11", "18-21", "22-23,26-27"),
        ("2-5,10-11", "6-7,18-19", "8-9,26-27", "12-13,20-21", "22-25,28-29"),
    ],
)
def test_every_state_between_the_changes_of_a_re_pack_is_valid(on):
    host, placement = spread(*on)
    made = repack(host, "s", REQUEST, placement)
    assert made.moves
    owners = {
        vcpu.thread.tid: (each.uuid, vcpu.thread.affinity) for each in host.guests for vcpu in each.vcpus if vcpu.thread
    }
    for change in made.changes:
        for mask in change.before if change.target.kind == "vcpu" else ():
            owners[mask.tid] = (change.target.owner, change.after)
            for cpu in change.after:
                assert {owner for owner, on in owners.values() if cpu in on} == {change.target.owner}


def test_a_host_without_pressure_has_nothing_to_re_pack():
    host, placement = spread("2-5", "6-9")
    assert repack(host, "s", REQUEST, placement).changes == ()
