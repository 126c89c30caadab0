"""What operators' pins own: no set of a plan has these CPUs, and the plan says so."""

from dataclasses import replace

import pytest
from data.field.pins import (
    emulator_pin,
    fifo,
    hana_pairs,
    one_node_pins,
    overlap,
    ovirt_pools,
    shared_pins,
    since_the_run,
    whole_cores,
)
from support.hosts import applied, cpus, process

from pinner.model.errors import Invalid, NoFit, Refused
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.placement import drifts, reasoned, record
from pinner.planning.planner import plan, plan_from_placement
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
    assert why(few)[0].endswith(
        "; it owns none of CPUs 0-15: pins to more cores than vCPUs only restrict it; to place it, name it in guests "
        "(--guest)"
    )
    assert (part.roles.housekeeping, part.roles.emulator) == (
        one_node_pins.HOUSEKEEPING_OF_PART,
        one_node_pins.EMULATOR_OF_PART,
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("host", ovirt_pools.HOSTS.values(), ids=ovirt_pools.HOSTS)
def test_a_pool_that_would_leave_no_role_a_core_only_restricts(host, strategy):
    made = plan(host, "s", Request(strategy))
    assert (made.roles.housekeeping, made.roles.emulator) == (ovirt_pools.HOUSEKEEPING, ovirt_pools.EMULATOR)
    assert not ovirt_pools.DEDICATED & made.roles.cpus
    assert "it owns CPUs 4,6,20,22" in why(made)[0]
    assert all(f"it owns none of CPUs {ovirt_pools.POOL}: " in each for each in why(made)[1:])


def test_a_policy_keeps_its_sets_when_the_next_guest_shares_the_pool():
    first = plan_from_placement(ovirt_pools.HOSTS["3"], "s", Request(), None)
    after = applied(ovirt_pools.HOSTS["3"], first)
    after = replace(after, guests=(*after.guests, ovirt_pools.HOSTS["4"].guests[-1]))
    again = plan_from_placement(after, "s", Request(), record(first, ovirt_pools.HOSTS["3"], None))
    assert (again.roles, again.changes) == (first.roles, ())


@pytest.mark.parametrize("strategy", [*STRATEGIES, "exclusive", "isolated", "optimal"])
def test_where_pins_leave_no_cpu_the_error_says_what_frees_some(strategy):
    with pytest.raises(NoFit) as refused:
        plan(ovirt_pools.NO_CPU, "s", Request(strategy))
    assert str(refused.value).endswith(ovirt_pools.CURE)
    assert plan(ovirt_pools.NO_CPU, "s", Request(strategy, released_guests=("g0", "g1", "g2"))).roles.cpus


def test_an_excluded_guest_keeps_the_cpus_of_its_pins():
    made = plan(hana_pairs.HOST, "s", Request(excluded_guests=("g1",)))
    assert not hana_pairs.OWNED & made.roles.cpus
    assert why(made) == ["the request excludes it (excluded_guests); it owns CPUs 4-19,116-131"]


def test_interrupts_leave_the_cpus_that_pins_own():
    assert Context.of(hana_pairs.HOST, Request()).of_others >= hana_pairs.OWNED


def since(pins: str, request: Request, **more: object):
    """The host after a run, with pins that an operator set since, and the placement of that run."""
    first = plan_from_placement(since_the_run.BEFORE, "s", request, None)
    host = since_the_run.pinned_since(applied(since_the_run.BEFORE, first), pins)
    return replace(host, **more), record(first, since_the_run.BEFORE, None), first.roles.cpus


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("pins", "more", "sets"),
    [
        ("0-3", {}, since_the_run.ANEW),
        ("2-5", {}, since_the_run.SHRUNK),
        ("8-11", {}, since_the_run.WITHOUT_8_TO_11),
        ("4-7", {"ovs": since_the_run.POLLING}, since_the_run.BESIDE_POLLING),
    ],
    ids=["housekeeping", "both automatic sets", "vCPUs", "beside polling"],
)
def test_pins_that_an_operator_sets_after_a_run_own_their_cpus(pins, more, sets, strategy):
    request = Request(strategy)
    host, placement, used = since(pins, request, **more)
    made = plan_from_placement(host, "s", request, placement)
    assert (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu) == sets
    assert f"; it owns CPUs {pins}; " in why(made)[0]
    lost = next(each for each in made.warnings if "of the recorded placement are not allocatable now" in each)
    assert f"{pins} are in the restricted affinity of guest g1, which an operator pinned" in lost
    require_permitted(identified(made, host)[0], host, Past(cpus=used), migrate_memory=False)
    again = plan_from_placement(applied(host, made), "s", request, record(made, host, placement))
    assert (again.changes, again.roles) == ((), made.roles)


def test_the_drift_names_the_guest_whose_operator_pinned_it():
    host, placement, _ = since("0-3", Request())
    made = plan_from_placement(host, "s", Request(), placement)
    found = {each.target.kind: (each.cause, each.detail) for each in drifts(made, placement, host)}
    assert found["process"] == ("moved", "an operator pinned guests to CPUs of its place: g1 (0-3)")
    assert found["emulator"] == ("moved", "")
    reasons = [each.reason for each in reasoned(made, drifts(made, placement, host)).changes]
    assert any(each.startswith("an operator pinned guests to CPUs of its place: g1 (0-3); busy") for each in reasons)


def test_a_literal_set_that_an_operator_pins_a_guest_to_is_refused():
    request = Request(housekeeping="0-3")
    host, placement, _ = since("0-3", request)
    with pytest.raises(Invalid, match="0-3 are in the restricted affinity of guest g1, which an operator pinned"):
        plan_from_placement(host, "s", request, placement)


def test_the_agent_gives_nobody_the_cpus_that_pins_own_by_now():
    made = plan(since_the_run.BEFORE, "s", Request())
    host = since_the_run.pinned_since(since_the_run.BEFORE, "0-3")
    with pytest.raises(Refused, match="0-3 are in the restricted affinity of guest g1, which an operator pinned"):
        require_permitted(identified(made, host)[0], host, Past(cpus=made.roles.cpus), migrate_memory=False)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_set_has_the_cpu_of_an_emulator_that_an_operator_pinned_beside_its_vcpus(strategy):
    made = plan(emulator_pin.HOST, "s", Request(strategy))
    sets = emulator_pin.HOUSEKEEPING, emulator_pin.EMULATOR, emulator_pin.VCPU
    assert (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu) == sets
    assert f"; it owns CPUs {emulator_pin.OWNED}; " in why(made)[0]
    assert plan(emulator_pin.WITH_IOTHREAD, "s", Request(strategy)).roles.emulator == emulator_pin.BESIDE_IOTHREAD
    assert plan(emulator_pin.WIDE, "s", Request(strategy)).roles.emulator == cpus("4-7")


def test_the_cpu_of_a_pinned_emulator_is_shared_where_a_role_would_lack_its_minimum():
    made = plan(emulator_pin.SMALL, "s", Request())
    assert made.roles.cpus == cpus("0-1")
    assert emulator_pin.WHY_SMALL in made.warnings
    assert "; it owns CPUs 2-7; " in why(made)[0]


def test_recorded_sets_keep_the_cpu_of_an_emulator_that_was_pinned_since():
    placed = replace(emulator_pin.HOST, guests=emulator_pin.HOST.guests[1:])
    first = plan_from_placement(placed, "s", Request(), None)
    host = replace(applied(placed, first), guests=(emulator_pin.HOST.guests[0], *applied(placed, first).guests))
    made = plan_from_placement(host, "s", Request(), record(first, placed, None))
    assert made.roles.cpus == cpus("0-7,12-31")
    assert any("the owner of guest g1's emulator restricted it to CPUs 5" in each for each in made.warnings)


def test_a_guest_with_pins_of_its_emulator_alone_owns_no_cpu():
    (owner, other) = emulator_pin.HOST.guests
    alone = replace(owner, operator_pins=owner.operator_pins[-1:])
    made = plan(replace(emulator_pin.HOST, guests=(alone, other)), "s", Request())
    assert "emulator to 5; housekeeping takes CPUs 5 of QEMU's own threads last; to place it" in why(made)[0]
    assert 5 in made.roles.cpus - made.roles.housekeeping


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_housekeeping_takes_cpus_of_emulators_and_iothreads_that_operators_pinned_last(strategy):
    made = plan(emulator_pin.LOW, "s", Request(strategy))
    assert (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu) == emulator_pin.BESIDE_LOW
    assert emulator_pin.WHY_LOW in why(made)[0]
    again = plan(applied(emulator_pin.LOW, made), "s", Request(strategy))
    assert again.roles.housekeeping == made.roles.housekeeping
    assert emulator_pin.WHY_FULL in plan(emulator_pin.FULL, "s", Request()).warnings


def test_a_warning_names_busy_processes_that_stay_on_the_cpus_of_an_owner():
    osd = process(2301, 85.0, "8", name="ceph-osd", reasons=["restricted"])
    idle = process(2302, 0.0, "9", name="idle", reasons=["restricted"])
    busy = replace(emulator_pin.HOST, processes=(*emulator_pin.HOST.processes, osd, idle))
    warning = "processes that stay may use CPUs that pins of guests own: process ceph-osd (2301) (CPUs 8)"
    assert warning in plan(busy, "s", Request()).warnings
    moved = plan(busy, "s", Request(processes=("ceph-osd",)))
    assert warning not in moved.warnings
    assert {want.cpus for want in moved.wanted if want.target.kind == "process"} == {emulator_pin.HOUSEKEEPING}
