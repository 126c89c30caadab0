"""Hosts whose cores differ in speed: guests stay on cores of one class."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import applied, cpus, guest, snapshot, topology
from support.made_up.anyhost import STRATEGIES

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.plan.request import Request
from pinner.planning.planner import plan
from pinner.planning.request.core_classes import warnings

CORES = [*([c, c + 1] for c in range(0, 12, 2)), *([c] for c in range(12, 20))]
"""Six P cores of two threads, eight E cores of one."""


def hybrid(isolated: str = "") -> Topology:
    top = topology({0: CORES}, isolated=isolated)
    return replace(top, cpus=tuple(replace(cpu, core_class=int(cpu.id >= 12)) for cpu in top.cpus))


FLOATING, ISOLATED = hybrid(), hybrid("4-19")
FAST, SLOW = cpus("0-11"), cpus("12-19")


def host(top: Topology, *vcpus: int):
    balanced = top.online - top.isolated
    return snapshot(top, [guest(number, count, balanced) for number, count in enumerate(vcpus)])


def used(made: Plan) -> dict[str, str]:
    """Whether the vCPUs of each guest have fast or slow CPUs, or both."""
    found: dict[str, CpuSet] = {}
    for want in made.wanted:
        if want.target.kind == "vcpu":
            found[want.target.name] = found.get(want.target.name, CpuSet()) | want.cpus
    return {name: "fast" if each <= FAST else "slow" if each <= SLOW else "both" for name, each in found.items()}


@pytest.mark.parametrize(
    ("strategy", "top", "vcpus", "expected"),
    [
        ("isolated", ISOLATED, (4, 4), "fast fast"),
        ("isolated", ISOLATED, (6, 4), "fast slow"),
        ("isolated", ISOLATED, (8, 5, 3), "fast slow slow"),
        ("isolated", ISOLATED, (6, 6, 2, 2), "fast slow fast slow"),
        ("isolated", hybrid("2-19"), (8, 7, 3), "slow fast fast"),
        ("numa-local", FLOATING, (4, 4), "fast fast"),
        ("numa-local", FLOATING, (8, 6), "fast slow"),
        ("numa-local", FLOATING, (8, 8, 8), "fast slow fast"),
    ],
)
def test_each_guest_gets_cores_of_one_class(strategy, top, vcpus, expected):
    before = host(top, *vcpus)
    made = plan(before, "s", Request(strategy))
    assert (made.unplaced, " ".join(used(made)[f"g{n}"] for n in range(len(vcpus)))) == ((), expected)
    assert not any("different speed" in warning for warning in made.warnings)
    assert plan(applied(before, made), "s", Request(strategy)).changes == ()


@pytest.mark.parametrize(
    ("strategy", "top", "vcpus"),
    [("isolated", ISOLATED, 10), ("numa-local", FLOATING, 14), ("shared-pool", FLOATING, 2)],
)
def test_a_plan_that_mixes_cores_in_one_guest_says_so(strategy, top, vcpus):
    made = plan(host(top, vcpus), "s", Request(strategy))
    assert (used(made), made.unplaced) == ({"g0": "both"}, ())
    assert [warning for warning in made.warnings if "different speed" in warning] == [
        "the vCPUs of g0 may run on cores of different speed: CPUs 0-11 are the host's fastest, CPUs 12-19 are slower"
    ]


def test_smt_isolate_takes_no_slow_core():
    made = plan(host(ISOLATED, 4, 1), "s", Request("isolated", smt="isolate"))
    assert used(made) == {"g0": "fast"}
    assert [left.target.name for left in made.unplaced] == ["g1"]
    assert "0 of the CPUs" in made.unplaced[0].why


def test_a_topology_whose_cores_are_alike_has_one_class():
    top = topology({0: CORES})
    assert top.core_classes == (top.online,)
    assert top.fingerprint != FLOATING.fingerprint


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    vcpus=st.lists(st.integers(1, 9), max_size=5),
    strategy=st.sampled_from(STRATEGIES),
    smt=st.sampled_from(["prefer", "isolate", "require"]),
)
def test_no_guest_is_mixed_silently_and_none_that_fits_is_left_out(vcpus, strategy, smt):
    top = ISOLATED if strategy == "isolated" else FLOATING
    before = host(top, *vcpus)
    made = plan(before, "s", Request(strategy, smt=smt))
    mixed = {name for name, each in used(made).items() if each == "both"}
    assert bool(mixed) == any("different speed" in warning for warning in made.warnings)
    if strategy != "isolated":
        assert made.unplaced == ()
    elif smt == "prefer":
        assert bool(made.unplaced) <= (sum(vcpus) > 16)
    assert smt != "isolate" or strategy != "isolated" or set(used(made).values()) <= {"fast"}


@pytest.mark.parametrize(("count", "named"), [(3, "g0, g1, g2 may run"), (4, "g0, g1, g2 and 1 more may run")])
def test_the_warning_names_three_guests_and_counts_the_others(count, named):
    mixed = (Wanted(Target("vcpu", str(number), 0, f"g{number}"), cpus("11-12"), "so") for number in range(count))
    (warning,) = warnings(FLOATING, mixed)
    assert f"the vCPUs of {named} on cores of different speed" in warning
