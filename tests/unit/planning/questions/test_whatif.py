"""Questions about hosts that are not so, and why a plan gives a guest its CPUs."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, cpus, guest, interleaved, plain, snapshot
from support.made_up.anyhost import STRATEGIES, snapshots

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NoFit, NotFound
from pinner.model.plan.request import Request
from pinner.model.questions import Explanation, GuestShape, NewGuests, Scenario, WhatIf
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan
from pinner.planning.questions.whatif import changed, explain_placement, what_if

HOST = plain(32, 2)
"""Pools of 12 CPUs a node: 4-15 and 20-31."""
GUESTS = snapshot(HOST, [guest(1, 8, HOST.online), guest(2, 10, HOST.online, memory={1: GIB})])
LOCAL = Request("numa-local")


def new(vcpus: int, gib: int = 0, count: int = 1, strategy: str = "") -> NewGuests:
    return NewGuests(GuestShape(vcpus, gib * GIB), count, strategy)


@pytest.mark.parametrize(
    ("scenario", "placed", "unplaced", "rising"),
    [
        (Scenario(), 2, 0, set()),
        (Scenario(add=(new(4, 8),)), 3, 0, {"shared_cores"}),
        (Scenario(add=(new(4, 8, count=3),)), 5, 0, {"overcommit", "shared_cores"}),
        (Scenario(add=(new(13),)), 2, 1, None),
        (Scenario(add=(new(2, 70),)), 2, 1, None),
        (Scenario(remove=("g1",)), 1, 0, set()),
        (Scenario(without_nodes=(1,)), 2, 0, {"overcommit", "shared_cores"}),
        (Scenario(without_cpus=cpus("16-31")), 2, 0, None),
        (Scenario(request=Request("shared-pool")), 2, 0, None),
        (Scenario(request=Request("isolated")), 0, 2, None),
    ],
)
def test_the_plan_before_and_after(scenario, placed, unplaced, rising):
    answer = what_if(GUESTS, LOCAL, scenario)
    assert (answer.before.guests, answer.before.strategy) == (2, "numa-local")
    assert (answer.after.guests, len(answer.after.unplaced)) == (placed, unplaced)
    for name, more in answer.change.items():
        assert more == pytest.approx(answer.after.planned[name] - answer.before.planned[name])
    if rising is not None:
        assert {name for name, more in answer.change.items() if more > 0} == rising
    assert codec.load(WhatIf, codec.dump(answer)) == answer


def test_the_guests_that_get_other_cpus_are_named():
    answer = what_if(GUESTS, LOCAL, Scenario(without_nodes=(0,)))
    assert [target.name for target in answer.moved] == ["g1"]


def test_a_host_without_a_plan_says_why():
    answer = what_if(GUESTS, LOCAL, Scenario(request=Request("numa-local", housekeeping="0-31")))
    assert "no CPU is left" in answer.after.impossible
    assert (answer.change, answer.after.planned) == ({}, {})


@pytest.mark.parametrize(
    ("scenario", "error", "words"),
    [
        (Scenario(remove=("g9",)), NotFound, "g9"),
        (Scenario(without_nodes=(4,)), NotFound, "node"),
        (Scenario(without_cpus=cpus("40")), Invalid, "40 are not"),
        (Scenario(without_cpus=HOST.online), NoFit, "no CPU would be left"),
        (Scenario(without_nodes=(0, 1)), NoFit, "no CPU would be left"),
        (Scenario(add=(new(1, count=1000), new(1, count=100))), Invalid, "at most 1024"),
        (Scenario(add=(new(8000, count=3),)), Invalid, "at most 16384 vCPUs"),
        (Scenario(request=Request("fast")), NotFound, "fast"),
    ],
)
def test_an_impossible_scenario(scenario, error, words):
    with pytest.raises(error, match=words):
        what_if(GUESTS, LOCAL, scenario)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(host=snapshots(), data=st.data(), strategy=st.sampled_from(STRATEGIES))
def test_any_scenario_of_any_host_has_an_answer(host: Snapshot, data, strategy: str):
    """A guest is placed, unplaced or skipped, and a host without differences has the same plan."""
    try:
        plan(host, "s", Request(strategy))
    except NoFit:
        assume(False)
    online = sorted(host.topology.online)
    gone = CpuSet.of(data.draw(st.lists(st.sampled_from(online), max_size=len(online) - 1)))
    assume(host.topology.online - gone)
    names = data.draw(st.lists(st.sampled_from([each.name for each in host.guests]), max_size=2)) if host.guests else []
    scenario = Scenario((new(2, 1, 2),), tuple(names), without_cpus=gone)
    answer = what_if(host, Request(strategy), scenario)
    assert answer.after.impossible or answer.after.guests + len(answer.after.unplaced) <= len(host.guests) + 2
    nothing = what_if(host, Request(strategy), Scenario())
    assert (nothing.change, nothing.moved) == ({}, ())
    assert changed(host, Scenario()) == host


def test_an_explanation_has_the_reason_and_what_each_other_node_costs():
    found = explain_placement(GUESTS, LOCAL, "g2")
    assert (found.guest.name, str(found.cpus), found.nodes) == ("g2", "20-31", (1,))
    assert found.why == ("node 1 has 100% of the guest's memory",)
    node, now = found.alternatives
    assert (node.kind, node.node, str(node.cpus)) == ("node", 0, "4-15")
    assert node.cost["remote_memory"] > 0
    assert [target.name for target in node.moved] == ["g1"]
    assert (now.kind, str(now.cpus), now.impossible) == ("now", "0-31", "")
    assert now.cost["vcpu_vs_emulator"] > 0
    assert codec.load(Explanation, codec.dump(found)) == found


def test_an_explanation_says_why_another_node_is_impossible():
    small = replace(HOST, nodes=(HOST.nodes[0], replace(HOST.nodes[1], memory_kib=4 * GIB)))
    found = explain_placement(snapshot(small, [guest(1, 2, HOST.online, memory={}, memory_kib=50 * GIB)]), LOCAL, "g1")
    assert found.nodes == (0,)
    assert "has the guest's 52428800 KiB of memory; the largest has 4194304 KiB" in found.alternatives[0].impossible


def test_a_guest_without_a_place_has_the_reason_and_no_alternatives():
    host = snapshot(HOST, [guest(1, 13, HOST.online), guest(2, 2, HOST.online, excluded=True)])
    found = explain_placement(host, LOCAL, "g1")
    assert (found.cpus, found.alternatives) == (CpuSet(), ())
    assert "no NUMA node has more than 12" in found.why[0]
    assert "its metadata excludes it" in explain_placement(host, LOCAL, "g2").why[0]
    assert explain_placement(host, Request(guests=("g1",)), "g2").why == ("the request does not name the guest",)
    with pytest.raises(NotFound):
        explain_placement(host, LOCAL, "g3")


def test_caches_are_alternatives_too():
    top = interleaved(16, isolated="4-15,20-31")
    domains = tuple(cpus(each) for each in ("0,2,4,6,16,18,20,22", "8,10,12,14,24,26,28,30", "1,3,5,7,17,19,21,23"))
    top = replace(top, l3_domains=domains)
    host = snapshot(top, [guest(1, 4, top.online - top.isolated, memory={0: GIB})])
    found = explain_placement(host, Request("isolated"), "g1")
    assert found.nodes == (0,)
    assert [each.kind for each in found.alternatives] == ["node", "l3", "l3", "now"]
    assert all(each.impossible or each.cpus for each in found.alternatives)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(host=snapshots(), strategy=st.sampled_from(STRATEGIES))
def test_every_guest_of_any_host_has_an_explanation(host: Snapshot, strategy: str):
    assume(host.guests)
    try:
        made = plan(host, "s", Request(strategy))
    except NoFit:
        assume(False)
    for each in host.guests:
        found = explain_placement(host, Request(strategy), each.name)
        assert found.why
        assert bool(found.cpus) == any(
            want.target.kind == "vcpu" and want.target.owner == each.uuid for want in made.wanted
        )
        for other in found.alternatives:
            assert not other.impossible or not other.cost
            assert "rules" not in other.impossible
