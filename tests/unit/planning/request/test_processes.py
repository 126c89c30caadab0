"""Which processes move, which stay, and whose CPUs are in no set."""

from dataclasses import replace

import pytest
from support.hosts import applied, cpus, guest, plain, process, snapshot, topology

from pinner.model.machine.process import NOT_PERMITTED
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

ALL = "0-31"


def moved(made: Plan) -> dict[str, list[tuple[int, str]]]:
    return {
        str(change.target): [(thread.tid, str(thread.cpus)) for thread in change.before]
        for change in made.changes
        if change.target.kind == "process"
    }


def stays(made: Plan) -> dict[str, str]:
    return {left.label: left.why for left in made.skipped}


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_a_pmd_thread_stays_and_its_cpu_is_in_no_set(strategy: str) -> None:
    pmd = process(300, 102.0, ALL, "9", ALL, name="ovs-vswitchd", reasons=["", "restricted", ""])
    made = plan(snapshot(plain(32), [guest(1, 2, cpus(ALL))], [pmd]), "s", Request(strategy))
    assert moved(made) == {"process ovs-vswitchd (300)": [(300, ALL), (302, ALL)]}
    assert list(stays(made)) == ["process ovs-vswitchd (300) thread 301"]
    assert "its owner restricted it to CPUs 9;" in stays(made)["process ovs-vswitchd (300) thread 301"]
    for role in (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu):
        assert 9 not in role


@pytest.mark.parametrize("name", ["ovs-vswitchd", "300"])
def test_a_restricted_process_that_is_asked_for_moves_and_its_cpus_are_free(name: str) -> None:
    pmd = process(300, 100.0, ALL, "9", name="ovs-vswitchd", reasons=["", "restricted"])
    made = plan(snapshot(plain(32), [], [pmd]), "s", Request(processes=(name,)))
    assert moved(made) == {"process ovs-vswitchd (300)": [(300, ALL), (301, "9")]}
    assert 9 in made.roles.vcpu
    assert made.skipped == ()


def test_only_processes_above_the_threshold_are_busy() -> None:
    processes = [process(300, 2.0, ALL), process(400, 2.1, ALL), process(500, 0.0, ALL, name="idle")]
    assert list(moved(plan(snapshot(plain(32), [], processes), "s", Request()))) == ["process daemon (400)"]
    made = plan(snapshot(plain(32), [], processes), "s", Request(busy_threshold=50.0, processes=("idle",)))
    assert [(str(change.target), change.reason) for change in made.changes] == [
        ("process idle (500)", "asked for by name")
    ]


def test_busy_processes_that_cannot_move_are_listed_except_those_of_guests() -> None:
    processes = [
        process(2, 9.0, "0", name="ksoftirqd/0", immovable_reason="per-cpu"),
        process(3, 30.0, "1", name="ksoftirqd/1", immovable_reason="per-cpu"),
        process(10, 80.0, ALL, name="pinner", immovable_reason="pinner"),
        process(11_000, 99.0, ALL, name="qemu", immovable_reason="guest"),
        process(40, 70.0, "8-9", "8-9", name="ceph-osd", reasons=["restricted", "restricted"]),
    ]
    made = plan(snapshot(plain(32), [], processes), "s", Request())
    assert made.changes == ()
    assert stays(made) == {
        "process ksoftirqd/1 (3)": (
            "30.0 % of one CPU; a per-CPU kernel thread cannot leave its CPU; "
            "it is the busiest of 2 such threads, which together use 39.0 % of one CPU"
        ),
        "process pinner (10)": "80.0 % of one CPU; pinner itself",
        "process ceph-osd (40)": (
            "70.0 % of one CPU; its owner restricted it to CPUs 8-9; to move it, name it in processes (--process)"
        ),
    }


def test_a_process_that_is_asked_for_and_cannot_move_is_listed() -> None:
    processes = [
        process(2, 0.0, "0", name="ksoftirqd/0", immovable_reason="per-cpu"),
        process(11_000, 0.0, ALL, name="qemu", immovable_reason="guest"),
    ]
    made = plan(snapshot(plain(32), [], processes), "s", Request(processes=("2", "qemu")))
    assert made.changes == ()
    assert stays(made) == {
        "process ksoftirqd/0 (2)": "0.0 % of one CPU; a kernel thread that cannot leave CPU 0",
        "process qemu (11000)": "it belongs to a guest and is placed with that guest",
    }


@pytest.mark.parametrize("processes", [(), ("kswapd0", "300")])
def test_a_process_that_pinner_may_not_move_stays_and_its_restricted_cpus_are_in_no_set(processes) -> None:
    kernel = process(45, 40.0, ALL, name="kswapd0", immovable_reason="not-permitted")
    daemon = process(300, 9.0, "9", reasons=["restricted"], immovable_reason="not-permitted", reserves="privileged")
    made = plan(snapshot(plain(32), [guest(1, 2, cpus(ALL))], [kernel, daemon]), "s", Request(processes=processes))
    assert moved(made) == {}
    assert stays(made) == {
        "process kswapd0 (45)": f"40.0 % of one CPU; {NOT_PERMITTED}",
        "process daemon (300)": f"9.0 % of one CPU; {NOT_PERMITTED}",
    }
    assert 9 not in made.roles.cpus


@pytest.mark.parametrize("reserves", ["privileged", "configured", "worked"])
def test_the_cpus_of_an_idle_restricted_process_are_in_no_set_with_a_reason(reserves: str) -> None:
    idle = process(40, 0.0, "0-1", reasons=["restricted"], reserves=reserves)
    made = plan(snapshot(plain(32), [], [idle]), "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == ("2-5", "6-9", "10-31")
    assert made.skipped == ()


@pytest.mark.parametrize(
    "sets", [{}, {"housekeeping": "0-3", "emulator": "4-7"}, {"housekeeping": "0-3"}, {"emulator": "4-7"}]
)
def test_a_mask_that_equals_housekeeping_is_no_restricted_affinity(sets: dict[str, str]) -> None:
    host = snapshot(
        plain(32),
        [],
        [process(40, 9.0, "0-3", reasons=["restricted"]), process(41, 9.0, "16", reasons=["restricted"])],
    )
    made = plan(host, "s", Request(**sets))
    assert (str(made.roles.housekeeping), str(made.roles.vcpu)) == ("0-3", "8-15,17-31")


def test_a_mask_that_equals_housekeeping_beside_a_literal_emulator_set_is_no_restricted_affinity() -> None:
    host = snapshot(plain(32), [], [process(40, 9.0, "4-7", reasons=["restricted"])])
    assert str(plan(host, "s", Request(emulator="0-3")).roles.housekeeping) == "4-7"


def test_the_cpus_of_a_configured_owner_are_no_housekeeping_set_that_was_made_by_hand() -> None:
    host = snapshot(plain(32), [], [process(40, 9.0, "0-3", reasons=["restricted"], reserves="configured")])
    assert not plan(host, "s", Request()).roles.housekeeping & cpus("0-3")


def test_all_threads_of_a_process_move_and_the_plan_has_the_mask_of_each() -> None:
    host = snapshot(plain(32), [], [process(300, 90.0, "0-3", ALL, "5-6")])
    made = plan(host, "s", Request())
    assert moved(made) == {"process daemon (300)": [(300, "0-3"), (301, ALL), (302, "5-6")]}
    assert plan(applied(host, made), "s", Request()).changes == ()


def test_without_a_sample_no_process_counts_as_busy_and_the_plan_says_so() -> None:
    made = plan(snapshot(plain(32), sample_seconds=0.0), "s", Request())
    assert any("not measured" in warning for warning in made.warnings)


def test_the_cpu_of_an_excluded_guest_is_not_taken_for_housekeeping_set_by_hand():
    excluded = replace(guest(1, 1, cpus("0")), excluded=True)
    host = snapshot(topology({0: [[0, 1]]}), [excluded], [process(300, 3.0, "1", reasons=["restricted"])])
    assert plan(host, "s", Request()).roles.housekeeping == cpus("1")


def test_a_plan_for_some_guests_moves_no_process_and_says_how_many_busy_ones_stay() -> None:
    busy = [process(300, 40.0, ALL), process(400, 9.0, "0-3", name="inside"), process(500, 0.0, ALL, name="idle")]
    host = snapshot(plain(32), [guest(1, 2, cpus(ALL)), guest(2, 2, cpus(ALL))], busy)
    made = plan(host, "s", Request(guests=("g1",)))
    assert moved(made) == {}
    assert {change.target.name for change in made.changes} == {"g1"}
    assert str(made.roles.housekeeping) == "0-3"
    assert made.warnings == (
        "the request names guests: busy processes outside the housekeeping CPUs (1) stay where they are; "
        "with_processes (--with-processes) moves them too",
    )
    assert plan(applied(host, made), "s", Request(guests=("g1",))).changes == ()


def test_a_plan_for_some_guests_moves_the_processes_that_it_asks_for() -> None:
    processes = [process(300, 40.0, ALL), process(500, 0.0, ALL, name="idle")]
    host = snapshot(plain(32), [guest(1, 2, cpus(ALL))], processes)
    made = plan(host, "s", Request(guests=("g1",), processes=("idle",)))
    assert list(moved(made)) == ["process idle (500)"]
    both = plan(host, "s", Request(guests=("g1",), with_processes=True))
    assert (list(moved(both)), both.warnings) == (["process daemon (300)"], ())


def test_with_processes_changes_nothing_in_a_plan_for_all_guests() -> None:
    host = snapshot(plain(32), [guest(1, 2, cpus(ALL))], [process(300, 40.0, ALL)])
    made = plan(host, "s", Request(with_processes=True))
    assert made.changes == plan(host, "s", Request()).changes
    assert made.warnings == (
        "with_processes has no effect: a request for all guests moves the host's busy processes anyway",
    )


def test_housekeeping_stays_where_an_excluded_guest_is_pinned_to_one_of_its_cpus():
    """Otherwise the pin of one guest would move daemons that have a recorded place."""
    top = topology({0: [[0], [1], [2], [3]]})
    host = snapshot(top, [guest(1, 1, top.online), guest(2, 1, top.online)], [process(300, 9.0, "0-3")])
    made = plan(host, "s", Request())
    placed, place = applied(host, made), record(made, host, None)
    excluded = replace(guest(2, 1, made.roles.housekeeping), excluded=True)
    later = replace(placed, guests=tuple(excluded if each.uuid == excluded.uuid else each for each in placed.guests))
    again = plan_from_placement(later, "s", Request(), place)
    assert (again.changes, again.roles) == ((), made.roles)


@pytest.mark.parametrize(("strategy", "kept"), [("shared-pool", False), ("numa-local", False), ("isolated", True)])
def test_floating_vcpus_need_a_balanced_core_beside_isolated_ones(strategy: str, kept: bool) -> None:
    busy = process(300, 50.0, "1", reasons=["restricted"])
    host = snapshot(plain(6, isolated="3-5"), [guest(1, 1, cpus("0-2"))], [busy])
    made = plan(host, "s", Request(strategy))
    assert bool(made.roles.cpus & cpus("1")) != kept
    assert made.roles.notes == ()


def test_a_node_that_firm_processes_leave_too_small_sets_no_process_of_another_node_aside():
    top = topology({0: [[0], [1]], 1: [[cpu] for cpu in range(2, 16)]})
    firm = process(300, 0.0, "1", reasons=["restricted"], reserves="privileged")
    busy = process(400, 50.0, "10", reasons=["restricted"])
    made = plan(snapshot(top, [guest(1, 1, top.online)], [firm, busy]), "s", Request())
    assert (made.roles.cpus & cpus("1,10"), made.warnings) == (cpus(""), ())


@pytest.mark.parametrize(("reserves", "vcpus"), [("", "3"), ("privileged", "")])
def test_isolated_cpus_of_a_node_are_not_all_taken_by_processes_without_privileges(reserves: str, vcpus: str) -> None:
    process_on_3 = process(300, 50.0, "3", reasons=["restricted"], reserves=reserves)
    host = snapshot(plain(8, 2, isolated="3,7"), [guest(1, 1, cpus("0-2"))], [process_on_3])
    made = plan(host, "s", Request("isolated"))
    assert (made.roles.vcpu & cpus("0-3"), made.blocked) == (cpus(vcpus), "")


@pytest.mark.parametrize(("strategy", "housekeeping"), [("shared-pool", "0"), ("isolated", "0,2")])
def test_a_mask_that_equals_housekeeping_of_another_strategy_is_a_restricted_affinity(
    strategy: str, housekeeping: str
) -> None:
    """On a node with isolated CPUs, housekeeping may use more of the others."""
    top = topology({0: [[0], [2], [4], [6], [8]]}, isolated="8")
    host = snapshot(top, processes=[process(300, 150.0, "0,2", reasons=["restricted"])])
    made = plan(host, "s", Request(strategy))
    assert made.roles.housekeeping == cpus(housekeeping)
    allocated_although_restricted = [warning for warning in made.warnings if "are restricted to them" in warning]
    assert bool(allocated_although_restricted) == (strategy == "shared-pool")
