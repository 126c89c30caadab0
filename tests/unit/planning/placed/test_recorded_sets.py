"""The sets of a recorded placement stay: with a guest that fits no set, and with guests of several strategies."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.hosts import applied, cpus, guest, interleaved, plain, process, snapshot

from pinner.model.guest.guest import NovaIdentity, OperatorPin
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.plan import Placement, Plan, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

SHARED_POOL = Request()


def flavor(strategy: str) -> NovaIdentity:
    return NovaIdentity("i", "p", "u", "f", {"pinner:strategy": strategy})


def sets(made: Plan) -> str:
    return f"{made.roles.housekeeping}|{made.roles.emulator}|{made.roles.vcpu}"


def host_of(guests: Iterable, count: int, isolated: str = "") -> Snapshot:
    top = plain(count, isolated=isolated)
    return snapshot(top, guests, [process(300, 40.0, str(top.online - top.isolated))])


def followed(before: Snapshot, request: Request) -> tuple[Plan, Snapshot, Placement]:
    made = plan(before, "s", request)
    return made, applied(before, made), record(made, before, None)


def arrived(host: Snapshot, *guests) -> Snapshot:
    return replace(host, guests=(*host.guests, *guests))


@pytest.mark.parametrize(
    ("strategy", "isolated", "recorded"),
    [("numa-local", "", "0-3|4-7|8-31"), ("isolated", "16-31", "0-3|4-7|16-31")],
)
def test_a_guest_that_new_sets_do_not_place_either_changes_no_set(strategy, isolated, recorded):
    """A guest of 6 vCPUs whose slice has 4 CPUs fits no set; new sets would move all other guests."""
    floor, slice_ = cpus("0-15" if isolated else "0-31"), cpus("8-11")
    request = Request(strategy)
    made, after, placement = followed(host_of([guest(1, 4, floor), guest(2, 4, floor)], 32, isolated), request)
    assert sets(made) == recorded
    new = guest(20, 6, slice_, cpu_limits=(CpuLimit("machine.slice/a.slice", slice_),))
    again = plan_from_placement(arrived(after, new), "s", request, placement)
    assert (sets(again), again.changes, [left.label for left in again.unplaced]) == (recorded, (), ["guest g20"])


def test_new_sets_place_a_guest_of_a_slice_that_the_recorded_ones_leave_out():
    """4 vCPUs fit the slice: it gets a core of the emulator set, which shares nothing."""
    floor, slice_ = cpus("0-31"), cpus("8-11")
    made, after, placement = followed(host_of([guest(1, 4, floor)], 32), SHARED_POOL)
    new = guest(20, 3, slice_, cpu_limits=(CpuLimit("machine.slice/a.slice", slice_),))
    again = plan_from_placement(arrived(after, new), "s", SHARED_POOL, placement)
    assert again.unplaced == ()
    assert again.roles != made.roles
    assert again.roles.emulator & slice_


def test_new_sets_are_made_without_the_record_where_its_cpus_leave_a_guest_out():
    """As long as spdk's CPUs of the record are allocatable, the roles have their minimum without those of ceph-osd,
    which are all that the slice of g3 allows. Without them, the CPUs of ceph-osd are allocated."""
    slice_, floor = cpus("5-11"), cpus("1-3,13-15")
    ceph = process(400, 90.0, "4-11", name="ceph-osd", reasons=["restricted"])
    spdk = process(500, 90.0, "1,10,14,16,22", name="spdk", reasons=["restricted"], reserves="privileged")
    before = snapshot(interleaved(12, 1), [guest(4, 4, floor)])
    placement = record(plan(before, "s", SHARED_POOL), before, None)
    placement = replace(placement, roles=Roles(cpus("17-19"), cpus("0,12,20"), cpus("1-3,13-16,21-23")))
    new = guest(3, 1, cpus("9-11"), cpu_limits=(CpuLimit("machine.slice", slice_),))
    again = plan_from_placement(replace(arrived(before, new), processes=(ceph, spdk)), "s", SHARED_POOL, placement)
    assert (again.unplaced, again.blocked) == ((), "")
    assert again.roles.vcpu & slice_


ISOLATED_AND_LOCAL = [guest(1, 4, cpus("0-11")), guest(2, 2, cpus("0-11"), nova=flavor("numa-local"))]


@pytest.mark.parametrize("nova", [None, flavor("isolated"), flavor("numa-local")])
def test_guests_of_all_strategies_have_the_same_sets(nova):
    """The new guest may only use CPUs of housekeeping: whichever strategy its flavor asks for, new sets place it."""
    made, after, placement = followed(host_of(ISOLATED_AND_LOCAL, 16, "12-15"), SHARED_POOL)
    assert sets(made) == "0-1|2-3|4-11"
    new = guest(3, 6, cpus("0-1"), restriction=cpus("0-1"), nova=nova)
    again = plan_from_placement(arrived(after, new), "s", SHARED_POOL, placement)
    fresh = plan(arrived(after, new), "s", SHARED_POOL)
    assert again.unplaced == fresh.unplaced == ()
    assert again.roles == fresh.roles


def test_a_guest_of_another_strategy_stays_in_the_recorded_sets():
    """g3's pins owned CPUs 8-11. When it has left, these CPUs stay out of the recorded set: for g2, too."""
    pins = tuple(OperatorPin("vcpu", vcpu, cpus(str(8 + vcpu)), "definition") for vcpu in range(4))
    owner = guest(3, 4, cpus("0-15"), pins=["8", "9", "10", "11"], operator_pins=pins)
    local = guest(2, 2, cpus("0-15"), nova=flavor("numa-local"))
    made, after, placement = followed(host_of([guest(1, 4, cpus("0-15")), local, owner], 16), SHARED_POOL)
    assert sets(made) == "0-1|2-3|4-7,12-15"
    left = replace(after, guests=after.guests[:2])
    again = plan_from_placement(left, "s", SHARED_POOL, placement)
    assert (again.changes, again.roles.vcpu) == ((), made.roles.vcpu)


def test_a_reason_tells_of_the_vcpus_of_other_strategies_too():
    """CPUs 0 and 1 are the only ones where threads float: g1's vCPUs float where g2's emulator threads are."""
    isolated = guest(2, 1, cpus("0-1"), nova=flavor("isolated"))
    made = plan(snapshot(plain(4, isolated="2-3"), [guest(1, 2, cpus("0-1")), isolated]), "s", SHARED_POOL)
    whys = {want.target.name: want.reason for want in made.wanted if want.target.kind == "emulator"}
    assert whys == dict.fromkeys(("g1", "g2"), "QEMU's own threads run on CPUs 1, which vCPUs use too")
