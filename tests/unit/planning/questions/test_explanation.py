"""Why a plan gives a guest its CPUs."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, cpus, guest, interleaved, plain, snapshot
from support.made_up.anyhost import STRATEGIES, snapshots

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.errors import NoFit, NotFound
from pinner.model.plan.request import Request
from pinner.model.questions import Explanation
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan
from pinner.planning.questions.explanation import explain_placement

HOST = plain(32, 2)
"""Pools of 12 CPUs a node: 4-15 and 20-31."""
GUESTS = snapshot(HOST, [guest(1, 8, HOST.online), guest(2, 10, HOST.online, memory={1: GIB})])
LOCAL = Request("numa-local")


def test_an_explanation_has_the_reason_and_what_each_other_node_costs():
    explanation = explain_placement(GUESTS, LOCAL, "g2")
    assert (explanation.guest.name, str(explanation.cpus), explanation.nodes) == ("g2", "20-31", (1,))
    assert explanation.why == ("node 1 has 100% of the guest's memory",)
    node, now = explanation.alternatives
    assert (node.kind, node.node, str(node.cpus)) == ("node", 0, "4-15")
    assert node.cost["remote_memory"] > 0
    assert [target.name for target in node.moved] == ["g1"]
    assert (now.kind, str(now.cpus), now.impossible) == ("now", "0-31", "")
    assert now.cost["vcpu_vs_emulator"] > 0
    assert codec.load(Explanation, codec.dump(explanation)) == explanation


def test_an_explanation_says_why_another_node_is_impossible():
    small = replace(HOST, nodes=(HOST.nodes[0], replace(HOST.nodes[1], memory_kib=4 * GIB)))
    explanation = explain_placement(
        snapshot(small, [guest(1, 2, HOST.online, memory={}, memory_kib=50 * GIB)]), LOCAL, "g1"
    )
    assert explanation.nodes == (0,)
    assert (
        "has the guest's 52428800 KiB of memory; the largest has 4194304 KiB" in explanation.alternatives[0].impossible
    )


def test_a_guest_without_a_place_has_the_reason_and_no_alternatives():
    host = snapshot(HOST, [guest(1, 15, HOST.online), guest(2, 2, HOST.online, excluded=True)])
    explanation = explain_placement(host, LOCAL, "g1")
    assert (explanation.cpus, explanation.alternatives) == (CpuSet(), ())
    assert "no NUMA node has more than 12" in explanation.why[0]
    assert "its metadata excludes it" in explain_placement(host, LOCAL, "g2").why[0]
    assert explain_placement(host, Request(guests=("g1",)), "g2").why == ("the request does not name the guest",)
    with pytest.raises(NotFound):
        explain_placement(host, LOCAL, "g3")


def test_caches_are_alternatives_too():
    top = interleaved(16, isolated="4-15,20-31")
    domains = tuple(cpus(each) for each in ("0,2,4,6,16,18,20,22", "8,10,12,14,24,26,28,30", "1,3,5,7,17,19,21,23"))
    top = replace(top, l3_domains=domains)
    host = snapshot(top, [guest(1, 4, top.online - top.isolated, memory={0: GIB})])
    explanation = explain_placement(host, Request("isolated"), "g1")
    assert explanation.nodes == (0,)
    assert [each.kind for each in explanation.alternatives] == ["node", "l3", "l3", "now"]
    assert all(each.impossible or each.cpus for each in explanation.alternatives)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(host=snapshots(), strategy=st.sampled_from(STRATEGIES))
def test_every_guest_of_any_host_has_an_explanation(host: Snapshot, strategy: str):
    assume(host.guests)
    try:
        planned = plan(host, "s", Request(strategy))
    except NoFit:
        assume(False)
    for each in host.guests:
        explanation = explain_placement(host, Request(strategy), each.name)
        assert explanation.why
        assert bool(explanation.cpus) == any(
            want.target.kind == "vcpu" and want.target.owner == each.uuid for want in planned.wanted
        )
        for other in explanation.alternatives:
            assert not other.impossible or not other.cost
            assert "rules" not in other.impossible
