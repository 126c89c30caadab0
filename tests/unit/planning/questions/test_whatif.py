"""Questions about hosts that are not so."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, cpus, guest, plain, snapshot
from support.made_up.anyhost import STRATEGIES, snapshots

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NoFit, NotFound
from pinner.model.plan.request import Request
from pinner.model.questions import GuestShape, NewGuests, Scenario, WhatIf
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan
from pinner.planning.questions.whatif import changed, what_if

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
        (Scenario(add=(new(15),)), 2, 1, None),
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
