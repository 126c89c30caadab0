"""What operators' pins own: no set of a plan has these CPUs, and the plan says so."""

import pytest
from data.field.pins import fifo, hana_pairs, one_node_pins, overlap, shared_pins, whole_cores
from support.hosts import applied, cpus

from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.planning.planner import plan
from pinner.planning.request.context import Context

STRATEGIES = ("shared-pool", "numa-local")


def why(made: Plan) -> list[str]:
    return [left.why for left in made.skipped if left.target.kind == "guest"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("host", "owned"),
    [
        (hana_pairs.HOST, hana_pairs.OWNED),
        (fifo.PINNED, fifo.OWNED),
        (fifo.RESTRICTED, fifo.OWNED),
        (shared_pins.HOST, shared_pins.OWNED),
        (whole_cores.HOST, whole_cores.OWNED),
        (one_node_pins.FULL, one_node_pins.NODE),
        (overlap.HOST, cpus("8-15")),
    ],
    ids=["pairs", "fifo", "fifo restricted", "shared", "whole cores", "node", "overlap"],
)
def test_no_set_has_a_cpu_that_a_pinned_guest_owns(host, owned, strategy):
    made = plan(host, "s", Request(strategy))
    assert not owned & made.roles.cpus
    assert all("; it owns CPUs " in each for each in why(made))
    assert not {change.target.name for change in made.changes} & {left.target.name for left in made.skipped}
    assert plan(applied(host, made), "s", Request(strategy)).changes == ()


def test_the_sets_beside_pairs():
    made, node = plan(hana_pairs.HOST, "s", Request()), hana_pairs.HOST.topology.online_by_node[0]
    assert (made.roles.housekeeping & node, made.roles.emulator & node) == (
        hana_pairs.HOUSEKEEPING_ON_0,
        hana_pairs.EMULATOR_ON_0,
    )
    assert why(made) == [
        "an operator pinned it in its definition: vcpu 0 to 4,116, vcpu 1 to 4,116, vcpu 2 to 5,117, vcpu 3 to 5,117 "
        "and 28 more; it owns CPUs 4-19,116-131; to place it, name it in guests (--guest)"
    ]


@pytest.mark.parametrize("host", [fifo.PINNED, fifo.RESTRICTED], ids=["pinned", "restricted"])
def test_the_sets_beside_fifo_vcpus(host):
    roles = plan(host, "s", Request()).roles
    assert (roles.housekeeping, roles.emulator, roles.vcpu) == (fifo.HOUSEKEEPING, fifo.EMULATOR, fifo.VCPU)


@pytest.mark.parametrize("module", [shared_pins, whole_cores])
def test_the_sets_beside_shared_pins_and_whole_cores(module):
    roles = plan(module.HOST, "s", Request()).roles
    assert (roles.housekeeping, roles.emulator) == (module.HOUSEKEEPING, module.EMULATOR)


def test_the_plan_says_who_shares_the_cpus():
    shared = why(plan(shared_pins.HOST, "s", Request()))
    assert [shared_pins.WHY.format(other) in each for other, each in zip((2, 1), shared, strict=True)] == [True, True]
    assert overlap.WHY in why(plan(overlap.HOST, "s", Request()))[2]


def test_pins_to_a_node_own_it_where_the_vcpus_can_use_it_alone():
    full, few, part = (
        plan(each, "s", Request()) for each in (one_node_pins.FULL, one_node_pins.FEW, one_node_pins.PART)
    )
    assert full.roles.cpus == one_node_pins.ROLES_OF_FULL
    assert few.roles.cpus >= one_node_pins.NODE
    assert "; other guests may share CPUs 0-15; to place it" in why(few)[0]
    assert (part.roles.housekeeping, part.roles.emulator) == (
        one_node_pins.HOUSEKEEPING_OF_PART,
        one_node_pins.EMULATOR_OF_PART,
    )


def test_an_excluded_guest_keeps_the_cpus_of_its_pins():
    made = plan(hana_pairs.HOST, "s", Request(excluded_guests=("g1",)))
    assert not hana_pairs.OWNED & made.roles.cpus
    assert why(made) == ["the request excludes it (excluded_guests)"]


def test_interrupts_leave_the_cpus_that_pins_own():
    assert Context.of(hana_pairs.HOST, Request()).of_others >= hana_pairs.OWNED
