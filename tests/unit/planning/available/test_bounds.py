"""The CPUs of confined guests in the plans of random hosts: slices, restrictions, operators' pins, lcores, classes."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from support.examples import examples
from support.hosts import applied
from support.made_up.bounded_hosts import bounded_hosts

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

FLOATING = ("shared-pool", "numa-local")
quietly = settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def planned(host: Snapshot, request: Request) -> Plan:
    try:
        made = plan(host, "s", request)
    except NoFit:
        return assume(False)
    assume(not made.blocked)
    return made


def bound(host: Snapshot, guest: Guest) -> CpuSet:
    cpus = (guest.restriction or host.topology.online) & host.topology.online
    for limit in guest.cpu_limits:
        cpus &= limit.cpus
    return cpus


@pytest.mark.parametrize("strategy", FLOATING)
@quietly
@given(host=bounded_hosts())
def test_every_thread_stays_inside_its_guests_bounds(host: Snapshot, strategy: str) -> None:
    made, guests = planned(host, Request(strategy)), {guest.uuid: guest for guest in host.guests}
    clusters = host.topology.clusters or (host.topology.online,)
    for want in made.wanted:
        if guest := guests.get(want.target.owner):
            assert want.cpus <= bound(host, guest), want
        assert want.target.kind != "vcpu" or any(want.cpus <= cluster for cluster in clusters)
        assert not (host.ovs and want.cpus & host.ovs.cpus)


@pytest.mark.parametrize("strategy", FLOATING)
@quietly
@given(host=bounded_hosts())
def test_a_second_plan_changes_nothing(host: Snapshot, strategy: str) -> None:
    request = Request(strategy)
    made = planned(host, request)
    after = applied(host, made)
    assert plan(after, "s", request).changes == ()
    again = plan_from_placement(after, "s", request, record(made, host, None))
    assert (again.changes, again.roles) == ((), made.roles)


@quietly
@given(host=bounded_hosts())
def test_automatic_sets_leave_each_guest_some_of_its_cpus_where_others_exist(host: Snapshot) -> None:
    """Not of the lcores, which are the host's."""
    made, top = planned(host, Request()), host.topology
    lcores = host.ovs.masks.lcore if host.ovs else CpuSet()
    allowed = {guest.uuid: bound(host, guest) for guest in host.guests if not guest.operator_pins}
    confined = union(
        union(top.online_cores[cpu] for cpu in cpus)
        for cpus in (
            *(cpus for cpus in allowed.values() if cpus != top.online),
            *(pin.cpus for guest in host.guests for pin in guest.operator_pins),
        )
    )
    for uuid in {left.target.owner for left in made.unplaced}:
        cpus = allowed[uuid] & made.roles.cpus - lcores
        nodes = union(node.cpus for node in top.nodes if node.cpus & cpus)
        assert not cpus or cpus & made.roles.vcpu or not (made.roles.vcpu & nodes - confined - lcores)
