"""Which of several new guests a policy leaves alone. On each of two nodes with two CPUs, the daemon's housekeeping gets
the first CPU, and QEMU's threads share the second with vCPUs."""

from dataclasses import replace

import pytest
from data.field.new_guests import CROWDED, FULL, NewGuests
from support.hosts import GIB, NOON, applied, cpus, guest, plain, process, snapshot

from pinner.model.change import TargetKey
from pinner.model.plan.request import Request
from pinner.model.policy import Backoff
from pinner.planning import planner
from pinner.planning.objective import worsening
from pinner.planning.placement import drifts, record
from pinner.planning.policy.backoff_counts import with_backoff
from pinner.planning.policy.left_alone import LeftAlone

NUMA_LOCAL = Request(strategy="numa-local")
LOW = cpus("0-1")
START = snapshot(plain(4, 2), [guest(1, 1, LOW, memory={0: 2 * GIB})], [process(500, 10.0, "0-1", "0-1")])
PLAN = planner.plan_from_placement(START, "first", NUMA_LOCAL, None)

WORSE = guest(2, 1, LOW, iothreads=3, memory={0: 2 * GIB})
"""Its four threads of QEMU are on CPUs 0-1 beside half a vCPU; on CPU 1 they are beside two."""


def near(number):
    """A guest on the other node, on the CPU of housekeeping: its place is CPU 3."""
    return guest(number, 1, cpus("2"), memory={1: 2 * GIB})


def left_alone(*new) -> LeftAlone:
    placement, now = record(PLAN, START, None), applied(START, PLAN)
    now = replace(now, guests=(*now.guests, *new))
    plan = planner.plan_from_placement(now, "second", NUMA_LOCAL, placement)
    return LeftAlone.of(plan, drifts(plan, placement, now), now, placement)


@pytest.mark.parametrize(
    ("others", "worse"),
    [((), "tier 6 4.58 -> 5.00"), ((3,), "tier 6 5.67 -> 7.10"), ((3, 4), "tier 6 7.67 -> 9.10")],
)
def test_only_the_guest_whose_place_is_worse_is_left_alone(others, worse):
    alone = left_alone(WORSE, *map(near, others))
    assert [*alone.reasons] == [TargetKey("guest", WORSE.uuid, None)]
    assert alone.why.startswith(f"guest g2 is left as it is: its place makes the objective worse: {worse}, ")
    assert not alone.worse


def test_each_guest_that_is_left_alone_has_its_own_reason():
    alone = left_alone(near(3), WORSE, guest(4, 1, cpus("0-3"), iothreads=2, memory={0: 2 * GIB}))
    second, fourth = alone.reasons.values()
    assert second.startswith("guest g2 ") and "tier 6 8.94 -> 9.53" in second
    assert fourth.startswith("guest g4 ") and "tier 6 8.94 -> 9.68" in fourth
    assert alone.why == f"{second}; {fourth}"


def test_recorded_lists_are_excused_for_as_many_cpus_as_automatic_sets_have():
    """24 vCPUs on 20-31: 12 of overcommit. The lists are 0-19, automatic sets would be 0-7: 24 CPUs would be left."""
    lists, every = Request(housekeeping="0-15", emulator="16-19"), cpus("0-31")
    start = snapshot(plain(32), [guest(1, 4, every)], [process(300, 40.0, "0-31")])
    first = planner.plan_from_placement(start, "first", lists, None)
    placement, now = record(first, start, None), applied(start, first)
    now = replace(now, guests=(*now.guests, guest(2, 20, every)))
    plan = planner.plan_from_placement(now, "second", lists, placement)
    alone = LeftAlone.of(plan, drifts(plan, placement, now), now, placement)
    assert alone.why == (
        "guest g2 is left as it is: its place makes the objective worse: tier 6 1.64 -> 12.00, of which 2.00 is "
        "excused, most of it by overcommit 0.00 -> 12.00 CPUs"
    )
    assert plan.worse == worsening(plan.objective)


def left_alone_while(waits: str, field: NewGuests, *, placed: tuple[str, ...] = ()) -> LeftAlone:
    """``waits``: the name of a new guest that backs off, or empty. Those in ``placed`` have their places already."""
    first = planner.plan_from_placement(field.start, "first", field.request, None)
    now, new = applied(field.start, first), (field.second, field.third)
    now = replace(now, guests=(*now.guests, *new))
    placement = record(first, field.start, None)
    plan = planner.plan_from_placement(now, "second", field.request, placement)
    if placed:
        changes = tuple(change for change in plan.changes if change.target.name in placed)
        out = {change.target.key for change in plan.changes if change not in changes}
        placement, now = record(plan, now, placement, unplaced=out), applied(now, replace(plan, changes=changes))
        plan = planner.plan_from_placement(now, "third", field.request, placement)
    backoffs = {TargetKey("guest", each.uuid, None): Backoff(3, NOON, "it hangs") for each in new if each.name == waits}
    return LeftAlone.of(plan, with_backoff(drifts(plan, placement, now), backoffs, NOON), now, placement)


def test_a_place_is_judged_without_those_of_the_guests_that_back_off():
    alone = left_alone_while("g2", CROWDED)
    assert "guest g3 is left as it is: its place makes the objective worse: tier 6 7.10 -> 8.00, " in alone.why
    assert left_alone_while("g3", FULL) == LeftAlone()


def test_a_place_that_is_worse_by_itself_is_judged_anew_beside_those_of_others():
    assert "guest g3 is left as it is" in left_alone_while("", CROWDED).why
    assert left_alone_while("", CROWDED, placed=("g2",)) == LeftAlone()


def test_guests_whose_places_are_better_alone_and_together_get_them():
    assert left_alone_while("", FULL) == LeftAlone()
