"""A guest stays on the CPUs that the cgroups above it allow, in every plan, and the plan names the cgroup. Slices that
confine the host's own processes are its housekeeping set, no claim of another owner."""

from dataclasses import replace

import pytest
from data.field.cgroups import (
    MACHINE_SLICE,
    MACHINE_SLICE_SETS,
    NOTHING_IN_COMMON,
    PAIRS,
    SLICE,
    SLICE_BESIDE_FREE,
    SLICE_BESIDE_FREE_SETS,
    TWO_SLICES,
    TWO_SLICES_PLACES,
    TWO_SLICES_SETS,
    TWO_STEPS,
    TWO_STEPS_SETS,
    WITH_CEPH,
    WITH_CEPH_SETS,
    in_slice,
)
from data.field.hosts_slices import (
    BESIDE_PINNED,
    BESIDE_PINNED_SETS,
    HALF,
    HALF_SETS,
    UPPER,
    UPPER_SETS,
    USERS,
    USERS_SETS,
    WITH_OSD,
    WITH_OSD_SETS,
)
from support.hosts import applied, cpus, guest, interleaved, plain, process, snapshot
from support.values import MEMBER

from pinner.model.cpuset import union
from pinner.model.errors import NoFit, Refused
from pinner.model.guest.guest import Cgroup, OperatorPin
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.request import Request
from pinner.model.questions import GuestShape, NewGuests
from pinner.model.states import PartitionState
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement
from pinner.planning.questions.whatif import with_guests

FLOATING = ("shared-pool", "numa-local")
PINNING = ("isolated", "optimal")


def sets(made):
    return tuple(map(str, (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu)))


def places(made, kind, name="g1"):
    return {str(want.cpus) for want in made.wanted if want.target.kind == kind and want.target.name == name}


@pytest.mark.parametrize("strategy", FLOATING)
@pytest.mark.parametrize(("host", "expected"), [(MACHINE_SLICE, MACHINE_SLICE_SETS), (WITH_CEPH, WITH_CEPH_SETS)])
def test_the_guests_sets_are_inside_their_slice_and_housekeeping_is_outside_as_far_as_it_can(host, expected, strategy):
    made = plan(host, "s", Request(strategy))
    assert sets(made) == expected
    assert not made.unplaced
    for want in made.wanted:
        if want.target.kind != "process":
            assert want.cpus <= SLICE.cpus, want
            assert "cgroup machine.slice allows CPUs 3-11,15-23" in want.reason


@pytest.mark.parametrize("strategy", PINNING)
def test_vcpus_get_isolated_cpus_of_their_slice_only(strategy):
    top = interleaved(12, 1, isolated="2-11,14-23")
    guests = [in_slice(SLICE, number=number, vcpus=6) for number in (1, 2)]
    host, request = snapshot(top, guests, [process(300, 40.0, "0-1,12-13")]), Request(strategy)
    made = plan(host, "s", replace(request, housekeeping="0,12", emulator="1,13"))
    assert {left.target.name for left in made.unplaced} == {"g1", "g2"}
    assert "CPUs 3-11,15-23 from cgroup machine.slice" in made.unplaced[0].why

    wide = replace(SLICE, cpus=cpus("1,3-11,13,15-23"))
    made = plan(replace(host, guests=tuple(replace(each, cpu_limits=(wide,)) for each in guests)), "s", request)
    assert not made.unplaced
    assert (places(made, "emulator"), str(made.roles.vcpu)) == ({"1,13"}, "3-11,15-23")


def test_each_slice_has_a_cpu_for_its_guests_emulators():
    made = plan(TWO_SLICES, "s", Request("shared-pool"))
    assert sets(made) == TWO_SLICES_SETS
    assert not made.unplaced
    for name, (emulator, vcpus) in TWO_SLICES_PLACES.items():
        assert (places(made, "emulator", name), places(made, "vcpu", name)) == ({emulator}, {vcpus})


@pytest.mark.parametrize("strategy", FLOATING)
@pytest.mark.parametrize(
    ("host", "expected"), [(SLICE_BESIDE_FREE, SLICE_BESIDE_FREE_SETS), (TWO_STEPS, TWO_STEPS_SETS)]
)
def test_automatic_sets_leave_a_small_slice_to_its_vcpus(host, expected, strategy):
    made = plan(host, "s", Request(strategy))
    assert (sets(made), made.unplaced) == (expected, ())
    assert plan(applied(host, made), "s", Request(strategy)).changes == ()


def test_a_slice_of_one_core_is_shared_with_a_note():
    one = CpuLimit("small.slice", cpus("9"))
    host = snapshot(plain(16), [in_slice(vcpus=2, top=plain(16)), in_slice(one, number=2, vcpus=1)])
    made = plan(host, "s", Request("shared-pool"))
    assert places(made, "emulator", "g2") == places(made, "vcpu", "g2") == {"9"}
    assert made.roles.notes == ("cgroup small.slice is small: emulator threads share CPUs 9 with vCPUs",)


def test_a_guest_with_a_limit_gets_no_more_than_its_part_beside_one_without():
    host = snapshot(PAIRS, [in_slice(), in_slice(SLICE, number=2)])
    made = plan(host, "s", Request("shared-pool"))
    assert sets(made) == ("0,12", "1,3,13,15", "2,4-11,14,16-23")
    assert (places(made, "emulator"), places(made, "vcpu")) == ({"1,3,13,15"}, {"2,4-11,14,16-23"})
    assert (places(made, "emulator", "g2"), places(made, "vcpu", "g2")) == ({"3,15"}, {"4-11,16-23"})
    why = next(want.reason for want in made.wanted if want.target.kind == "vcpu" and want.target.name == "g2")
    assert why == "the guest has CPUs 3-11,15-23 from cgroup machine.slice"


@pytest.mark.parametrize("strategy", FLOATING)
def test_a_guest_without_a_common_cpu_is_unplaced_and_every_set_is_named(strategy):
    other = in_slice(number=2, vcpus=2, top=plain(16, 2))
    made = plan(replace(NOTHING_IN_COMMON, guests=(*NOTHING_IN_COMMON.guests, other)), "s", Request(strategy))
    (left,) = made.unplaced
    assert left.target.name == "g1"
    assert left.why.startswith(
        "the guest has strict memory on node 1 and CPUs 2-7 from cgroup machine.slice, where the "
    )
    assert f"({made.roles.vcpu})" in left.why


def test_a_slice_whose_cpus_are_all_anothers_is_named_beside_the_other():
    host = replace(WITH_CEPH, guests=(in_slice(CpuLimit("machine.slice", cpus("0-2,12-14"))),))
    made = plan(host, "s", Request("shared-pool"))
    assert (
        "process ceph-osd (400) and 2 more (CPUs 0-2,12-14); cgroup machine.slice allows guests CPUs 0-2"
        in made.blocked
    )


def test_a_slice_without_a_cpu_that_pinner_may_allocate_is_named():
    host = replace(MACHINE_SLICE, dedicated=SLICE.cpus)
    with pytest.raises(NoFit, match=r"dedicated by Nova 3-11,15-23, outside cgroup machine\.slice 0-2,12-14"):
        plan(host, "s", Request("shared-pool"))


def test_a_new_guest_gets_the_limit_that_all_guests_have():
    added = (NewGuests(GuestShape(2, 1 << 20), 1),)
    assert with_guests(MACHINE_SLICE, added).guests[-1].cpu_limits == (SLICE,)
    assert with_guests(TWO_SLICES, added).guests[-1].cpu_limits == ()


def test_a_literal_emulator_set_outside_the_slice_leaves_its_guests_unplaced():
    made = plan(MACHINE_SLICE, "s", Request("shared-pool", emulator="1,13"))
    assert [left.why for left in made.unplaced] == [
        "the guest has CPUs 3-11,15-23 from cgroup machine.slice, where the emulator set (1,13) has no CPU"
    ] * 2


def test_a_limit_of_all_guests_spreads_a_guest_that_is_wider_than_a_node_as_before():
    """24 CPUs of two nodes; 20 vCPUs fit no node."""
    top = plain(32, 2, isolated="4-15,20-31")
    limit = CpuLimit("machine.slice", cpus("2-31"))
    for limits in ((), (limit,)):
        made = plan(snapshot(top, [in_slice(*limits, vcpus=20, top=top)]), "s", Request("isolated"))
        assert not made.unplaced
        assert len({str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"}) == 20


def test_recorded_sets_without_a_cpu_of_a_new_limit_are_made_anew():
    """The slice was limited after the placement."""
    free = replace(MACHINE_SLICE, guests=tuple(replace(each, cpu_limits=()) for each in MACHINE_SLICE.guests))
    request = Request("shared-pool")
    made = plan(free, "s", request)
    assert sets(made) == ("0,12", "1,13", "2-11,14-23")
    after, placement = applied(free, made), record(made, free, None)
    limited = replace(after, guests=tuple(replace(each, cpu_limits=(SLICE,)) for each in after.guests))
    again = plan_from_placement(limited, "s", request, placement)
    assert not again.unplaced
    assert sets(again) == MACHINE_SLICE_SETS


def test_an_agent_refuses_cpus_that_its_slice_does_not_allow():
    free = replace(MACHINE_SLICE, guests=tuple(replace(each, cpu_limits=()) for each in MACHINE_SLICE.guests))
    made, _ = identified(plan(free, "s", Request("shared-pool")), MACHINE_SLICE)
    with pytest.raises(
        Refused, match=r"placed on CPUs 1,13, but the guest has CPUs 3-11,15-23 from cgroup machine\.slice"
    ):
        require_permitted(made, MACHINE_SLICE, Past(), migrate_memory=False)


@pytest.mark.parametrize(("allowed", "placed"), [("0-1,12-13", {"0,12"}), ("6-8", set())])
def test_a_process_that_the_request_names_gets_what_its_cgroup_allows(allowed, placed):
    limit = CpuLimit("ceph.slice", cpus(allowed))
    osd = replace(process(400, 90.0, allowed, name="ceph-osd", reasons=["restricted"]), cpu_limits=(limit,))
    host = replace(MACHINE_SLICE, processes=(*MACHINE_SLICE.processes, osd))
    (left,) = plan(host, "s", Request("shared-pool")).skipped
    assert left.why == f"90.0 % of one CPU; cgroup ceph.slice allows CPUs {allowed}"
    made = plan(host, "s", Request("shared-pool", processes=("ceph-osd",)))
    assert places(made, "process", "ceph-osd") == placed
    why = "cgroup ceph.slice allows CPUs 6-8, where the housekeeping set (0,12) has no CPU"
    assert (f"process ceph-osd (400) stays: {why}" in made.warnings) == (not placed)


def test_live_partitions_stay_inside_the_slice():
    limited = Cgroup("machine.slice", PartitionState("member", SLICE.cpus))
    guests = tuple(
        replace(each, cgroups=(limited, Cgroup(f"machine.slice/{each.name}.scope", MEMBER)))
        for each in MACHINE_SLICE.guests
    )
    made = plan(replace(MACHINE_SLICE, guests=guests), "s", Request("isolated", isolation="live"))
    assert not made.unplaced
    of_slice = next(want for want in made.wanted if want.target.owner == "machine.slice")
    assert of_slice.cpus == SLICE.cpus


def test_a_slice_of_guests_that_stay_where_an_operator_pinned_them_needs_no_emulator_cpus():
    """g1 owns CPUs 8-11 and stays. g2 gets the sets that it has without the slice."""
    pins = tuple(OperatorPin("vcpu", vcpu, cpus(str(8 + vcpu)), "definition") for vcpu in range(4))
    limits = (CpuLimit("machine.slice/a.slice", cpus("8-15")),)
    daemon = process(300, 40.0, "0-31")
    for limit in ((), limits):
        owner = guest(1, 4, cpus("8-15"), pins=["8", "9", "10", "11"], operator_pins=pins, cpu_limits=limit)
        made = plan(snapshot(plain(32), [owner, guest(2, 8, cpus("0-31"))], [daemon]), "s", Request())
        assert sets(made) == ("0-3", "4-7", "12-31")
        assert places(made, "vcpu", "g2") == {"12-31"}


HOSTS = {"half": (HALF, HALF_SETS), "upper": (UPPER, UPPER_SETS), "service": (WITH_OSD, WITH_OSD_SETS)}


def moved(made):
    return {(change.target.name, str(change.after)) for change in made.changes if change.target.kind == "process"}


@pytest.mark.parametrize(("host", "expected"), HOSTS.values(), ids=HOSTS)
def test_the_slices_are_the_housekeeping_set(host, expected):
    made = plan(host, "s", Request())
    assert sets(made) == expected
    assert not (made.blocked or made.worse or made.unplaced)
    assert moved(made) <= {("kworker", expected[0]), *((name, WITH_OSD_SETS[0]) for name in ("kwin", "dockerd"))}
    require_permitted(identified(made, host)[0], host, Past(), migrate_memory=False)


@pytest.mark.parametrize("strategy", ["numa-local", "exclusive"])
def test_a_guest_that_does_not_fit_beside_the_slices_gets_cpus_inside(strategy):
    made = plan(HALF, "s", Request(strategy))
    assert not made.unplaced
    assert made.roles.housekeeping < cpus("0-7,16-23")
    require_permitted(identified(made, HALF)[0], HALF, Past(), migrate_memory=False)
    again = plan(applied(HALF, made, by_hand=True), "s", Request(strategy))
    assert (again.roles, again.changes) == (made.roles, ())


@pytest.mark.parametrize("strategy", [*FLOATING, "exclusive"])
def test_where_nothing_else_is_left_the_sets_are_inside_and_the_processes_move_there(strategy):
    made = plan(BESIDE_PINNED, "s", Request(strategy))
    assert sets(made) == BESIDE_PINNED_SETS
    assert not (made.blocked or made.unplaced)
    assert moved(made) == {("kwin", "9-10,25-26"), ("dockerd", "9-10,25-26")}
    require_permitted(identified(made, BESIDE_PINNED)[0], BESIDE_PINNED, Past(), migrate_memory=False)


@pytest.mark.parametrize("strategy", FLOATING)
def test_a_users_slice_alone_stays_its_users(strategy):
    assert sets(plan(USERS, "s", Request(strategy))) == USERS_SETS


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("host", "expected"), HOSTS.values(), ids=HOSTS)
def test_a_second_plan_changes_nothing(host, expected, by_hand):
    after = applied(host, plan(host, "s", Request()), by_hand=by_hand)
    again = plan(after, "s", Request())
    assert (sets(again), again.changes) == (expected, ())


@pytest.mark.parametrize("host", [HALF, BESIDE_PINNED])
def test_a_policy_keeps_the_sets(host):
    made = plan_from_placement(host, "s", Request(), None)
    again = plan_from_placement(applied(host, made), "s", Request(), record(made, host, None))
    assert again.changes == ()


def test_a_list_outside_the_slices_gets_no_process_of_theirs():
    made = plan(HALF, "s", Request(housekeeping="8-9,24-25"))
    assert moved(made) == {("kworker", "8-9,24-25")}
    assert any("cgroup user.slice allows CPUs 0-7,16-23" in each for each in made.warnings)


def test_live_partitions_have_no_cpu_of_the_slices():
    def scopes(each):
        paths = ("machine.slice", f"machine.slice/machine-{each.name}.scope")
        return replace(each, cgroups=tuple(Cgroup(path, MEMBER) for path in paths))

    request = Request("isolated", isolation="live")
    half, pinned = (replace(host, guests=tuple(map(scopes, host.guests))) for host in (HALF, BESIDE_PINNED))
    partitions = [want.cpus for want in plan(half, "s", request).wanted if want.target.kind == "partition"]
    assert partitions and not cpus("0-7,16-23") & union(partitions)
    with pytest.raises(NoFit, match=r"no CPU is left for emulators, vCPUs: .* housekeeping 9-15,25-31"):
        plan(pinned, "s", request)
