"""Slices that confine the host's own processes are its housekeeping set, no claim of another owner."""

from dataclasses import replace

import pytest
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
from support.hosts import applied, cpus
from support.values import MEMBER

from pinner.model.cpuset import union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Cgroup
from pinner.model.plan.request import Request
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

FLOATING = ("shared-pool", "numa-local")
HOSTS = {"half": (HALF, HALF_SETS), "upper": (UPPER, UPPER_SETS), "service": (WITH_OSD, WITH_OSD_SETS)}


def sets(made):
    return tuple(map(str, (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu)))


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
