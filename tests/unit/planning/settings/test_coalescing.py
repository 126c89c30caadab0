"""Interrupt coalescing of cards as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.settings.cards import MANY_INTERRUPTS, RxCoalescing
from pinner.model.snapshot import Snapshot
from pinner.model.states import Coalescing
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.planning.request.processes import with_loads
from pinner.render.shell import render

WITH = Request(remedies=("coalescing",))


def card(number, usecs=0, frames=0, rate=90_000.0, *, adaptive=False):
    return RxCoalescing(f"ens{number}", number + 1, usecs, frames, adaptive, rate)


CARDS = (
    card(1),
    card(2, rate=49_999.0),
    card(3, usecs=8),
    card(4, adaptive=True),
    card(5, frames=1),
    card(6, frames=64),
)


def host(cards=CARDS):
    return hosts.snapshot(hosts.plain(16), [hosts.guest(1, 2, cpus("0-15"))], coalescing=cards)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): each.after.usecs for each in made.changes if each.target.kind == "coalescing"}


def after(taken, made):
    given = {each.target.key: each.after for each in made.changes}
    states = ((each, given.get(each.target.key, each.states[each.target])) for each in taken.coalescing)
    moved = (
        replace(each, usecs=state.usecs, frames=state.frames, is_adaptive=state.is_adaptive) for each, state in states
    )
    return replace(hosts.applied(taken, made), coalescing=tuple(moved))


def test_a_card_gathers_packets_from_the_documented_rate_on():
    assert changed(plan(host((card(1, rate=MANY_INTERRUPTS), card(2, rate=MANY_INTERRUPTS - 0.1))))) == {
        "coalescing ens1": 50
    }


@pytest.mark.parametrize("request_", [WITH, Request(fix=("nic-no-coalescing",))], ids=["with", "fix"])
def test_a_card_with_many_packets_gathers_them_and_a_second_plan_changes_nothing(request_):
    made = plan(host(), request_)
    assert changed(made) == {"coalescing ens1": 50}
    assert plan(after(host(), made), request_).changes == ()
    assert codec.load(Plan, codec.dump(made)) == made
    assert codec.load(Snapshot, codec.dump(host())) == host()


FIX = Request(fix=("nic-adaptive-moderation",))
ADAPTIVE = (
    card(1, 64, 128, adaptive=True),
    card(2, 64, adaptive=True),
    card(3, 64, 128, 49_999.0, adaptive=True),
    card(4),
)


def test_only_the_fix_of_its_finding_ends_the_adaption_of_cards_with_many_packets():
    """As the documented case did; a driver that counts no packets (rx-frames 0) gets no number of them."""
    made = plan(host(ADAPTIVE), FIX)
    assert [(str(each.target), each.before, each.after) for each in made.changes] == [
        ("coalescing ens1", Coalescing(64, 128, is_adaptive=True), Coalescing(32, 32)),
        ("coalescing ens2", Coalescing(64, 0, is_adaptive=True), Coalescing(32)),
    ]
    assert changed(plan(host(ADAPTIVE))) == {"coalescing ens4": 50}
    assert plan(after(host(ADAPTIVE), made), FIX).changes == ()
    assert codec.load(Plan, codec.dump(made)) == made
    script = render(made)
    assert "\nethtool -C ens1 adaptive-rx off rx-usecs 32 rx-frames 32\n" in script
    assert "\nethtool -C ens2 adaptive-rx off rx-usecs 32\n" in script
    assert "\n# ethtool -C ens1 rx-usecs 64 rx-frames 128\n# ethtool -C ens1 adaptive-rx on\n" in script


def test_a_policy_ends_an_adaption_that_began_again_and_keeps_the_fixed_time():
    made = plan(host(ADAPTIVE), FIX)
    placement, placed = record(made, host(ADAPTIVE), None), after(host(ADAPTIVE), made)
    assert planner.plan_from_placement(placed, "s2", FIX, placement).changes == ()
    seen = replace(host(ADAPTIVE), coalescing=tuple(replace(each, rate=0.0) for each in ADAPTIVE))
    found = drifts(planner.plan_from_placement(seen, "s2", FIX, placement), placement, seen)
    assert [str(each.target) for each in found] == ["coalescing ens1", "coalescing ens2"]


def test_the_agent_ends_an_adaption_only_with_the_fixed_numbers():
    made = plan(host(ADAPTIVE), FIX)
    assert permit(made, host(ADAPTIVE)) == frozenset()
    for state in (Coalescing(32), Coalescing(50), Coalescing(32, 64), Coalescing(64, 128)):
        with pytest.raises(Refused, match="a plan gives it rx-usecs 32 rx-frames 32, and nothing else"):
            permit(replace(made, changes=(replace(made.changes[0], after=state),)), host(ADAPTIVE))
    with pytest.raises(Refused, match="a plan gives it 50 us, and no other time"):
        permit(replace(made, request=WITH), host(ADAPTIVE))


def test_a_card_that_interrupts_for_each_packet_at_any_time_is_left_out_with_the_reason():
    made = plan(host())
    assert [(str(left.target), left.why) for left in made.skipped if left.target.kind == "coalescing"] == [
        (
            "coalescing ens5",
            "it interrupts after 1 packets at any time (rx-frames), which only a person changes",
        )
    ]


def test_a_policy_keeps_the_time_of_a_card_that_receives_few_packets_now():
    made = plan(host())
    placement, placed = record(made, host(), None), after(host(), made)
    quiet = replace(placed, coalescing=tuple(replace(each, rate=0.0) for each in placed.coalescing))
    assert planner.plan_from_placement(quiet, "s2", WITH, placement).changes == ()
    seen = replace(quiet, coalescing=(replace(quiet.coalescing[0], usecs=0), *quiet.coalescing[1:]))
    (drift,) = drifts(planner.plan_from_placement(seen, "s2", WITH, placement), placement, seen)
    assert (str(drift.target), tuple(map(str, drift.states))) == ("coalescing ens1", ("rx-usecs 0", "rx-usecs 50"))
    for better in ({"usecs": 20}, {"is_adaptive": True}):
        seen = replace(quiet, coalescing=(replace(quiet.coalescing[0], **better), *quiet.coalescing[1:]))
        assert planner.plan_from_placement(seen, "s2", WITH, placement).changes == ()


def test_a_snapshot_without_a_sample_gets_the_rates_of_the_measured_one():
    unmeasured = replace(host(), coalescing=tuple(replace(each, rate=0.0) for each in CARDS))
    assert changed(plan(unmeasured)) == {}
    assert with_loads(unmeasured, host()).coalescing == CARDS
    assert with_loads(replace(host(), coalescing=None), host()).coalescing is None
    assert with_loads(unmeasured, replace(host(), coalescing=None)).coalescing == unmeasured.coalescing


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


def test_the_agent_admits_the_planners_changes_and_skips_a_card_that_is_another_now():
    """The agent counts no packets."""
    unmeasured = replace(host(), coalescing=tuple(replace(each, rate=0.0) for each in CARDS))
    made = plan(host())
    assert permit(made, unmeasured) == frozenset()
    other = replace(host(), coalescing=(replace(CARDS[0], index=9),))
    assert {str(target) for target in permit(made, other)} == {"coalescing ens1"}


@pytest.mark.parametrize(
    ("which", "before", "usecs", "request_", "why"),
    [
        (CARDS[0], 0, 50, Request(), "does not ask for coalescing"),
        (CARDS[0], 0, 0, WITH, "a plan gives it 50 us, and no other time"),
        (CARDS[0], 0, 1 << 31, WITH, "a plan gives it 50 us, and no other time"),
        (CARDS[2], 8, 50, WITH, "it gathers packets for 8 us already"),
        (CARDS[3], 0, 50, WITH, "its driver adapts the time to the load"),
        (CARDS[4], 0, 50, WITH, "it interrupts after 1 packets at any time"),
        (CARDS[5], 0, 50, WITH, "it interrupts after 64 packets at any time"),
    ],
)
def test_the_agent_refuses_other_changes(which, before, usecs, request_, why):
    made = plan(host())
    (change,) = [each for each in made.changes if each.target.kind == "coalescing"]
    forged = replace(change, target=which.target, before=Coalescing(before), after=Coalescing(usecs))
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(forged,), request=request_), host())
