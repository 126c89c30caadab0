"""No process starves the pools: restricted affinities, a role's minimum, and sets that follow the load."""

from dataclasses import replace

import pytest
from support.hosts import applied, cpus, guest, interleaved, plain, process, snapshot, topology

from pinner.model.machine.process import Process
from pinner.model.plan.plan import Plan, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import record
from pinner.planning.planner import plan

ALL = "0-31"
FLOATING = ["shared-pool", "numa-local"]


def tasksets(load: float = 0.0, user: int = 1001, **more: object) -> list[Process]:
    """A process on each CPU of 32, which a user restricted to that CPU."""
    return [process(1000 + 10 * c, load, str(c), reasons=["restricted"], user=user, **more) for c in range(32)]


def sets(roles: Roles) -> tuple[str, str, str]:
    return str(roles.housekeeping), str(roles.emulator), str(roles.vcpu)


def the(made: Plan, words: str) -> str:
    """The only warning with these words."""
    (found,) = (warning for warning in made.warnings if words in warning)
    return found


@pytest.mark.fault(49)
@pytest.mark.parametrize("strategy", FLOATING)
def test_idle_tasksets_of_a_user_change_no_set_and_are_told(strategy: str) -> None:
    host = snapshot(plain(32, 2), [guest(1, 4, cpus(ALL))], tasksets())
    made = plan(host, "s", Request(strategy))
    assert sets(made.roles) == sets(plan(replace(host, processes=()), "s", Request(strategy)).roles)
    assert made.blocked == ""
    told = the(made, "CPUs 0-31 are allocated although")
    assert "process daemon (1000) of user 1001 (CPUs 0)" in told
    assert "and 27 more" in told


@pytest.mark.fault(49)
@pytest.mark.parametrize(
    "facts", [{"load": 3.0}, {"reserves": "privileged"}, {"reserves": "configured"}, {"reserves": "worked"}]
)
def test_a_taskset_with_load_privilege_or_a_configured_owner_keeps_its_cpu(facts: dict) -> None:
    made = plan(snapshot(plain(32), [], [tasksets(**facts)[9]]), "s", Request())
    assert 9 not in made.roles.cpus
    assert not [warning for warning in made.warnings if "although" in warning]


@pytest.mark.fault(49)
@pytest.mark.parametrize("strategy", FLOATING)
@pytest.mark.parametrize("cores", [1, 2])
def test_busy_tasksets_never_take_a_role_its_minimum_of_a_node(strategy: str, cores: int) -> None:
    made = plan(
        snapshot(plain(32, 2), [guest(1, 4, cpus(ALL))], tasksets(5.0)), "s", Request(strategy, minimum_cores=cores)
    )
    assert made.roles.notes == ()
    for node in ("0-15", "16-31"):
        for role in (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu):
            assert len(role & cpus(node)) == cores
    assert f"fewer cores of a node than its minimum ({cores})" in the(made, "although")
    assert made.blocked == ""


@pytest.mark.fault(49)
def test_the_minimum_is_in_whole_cores() -> None:
    threads = [process(1000 + c, 5.0, str(c), reasons=["restricted"]) for c in range(8)]
    made = plan(snapshot(interleaved(8), [], threads), "s", Request())
    for role in (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu):
        for cores in ((0, 2, 4, 6), (1, 3, 5, 7)):
            assert any({core, core + 8} <= role.ids for core in cores)


@pytest.mark.fault(49)
@pytest.mark.parametrize("strategy", FLOATING)
def test_tasksets_of_root_on_every_cpu_block_the_plan_with_their_names(strategy: str) -> None:
    made = plan(snapshot(plain(32), [], tasksets(user=0, reserves="privileged")), "s", Request(strategy))
    assert "process daemon (1300) (CPUs 30), process daemon (1310) (CPUs 31), " in made.blocked
    assert "and 26 more" in made.blocked
    assert made.changes == ()


@pytest.mark.fault(49)
def test_roles_that_share_cpus_anyway_share_what_a_privileged_process_leaves() -> None:
    mine = [process(300, 0.0, "0", reasons=["restricted"], reserves="privileged"), process(400, 0.0, "0-1")]
    made = plan(snapshot(plain(2), [], mine), "s", Request())
    assert (sets(made.roles), made.blocked) == (("0", "1", "1"), "")
    mine[0] = process(300, 0.0, "1", reasons=["restricted"], reserves="privileged")
    made = plan(snapshot(plain(2), [], mine), "s", Request())
    assert (sets(made.roles), made.blocked) == (("0", "0", "0"), "")
    busy = plan(snapshot(plain(2), [], [process(300, 90.0, "1", reasons=["restricted"])]), "s", Request())
    assert sets(busy.roles) == ("0", "1", "1")


@pytest.mark.fault(49)
def test_the_firm_restricted_affinities_come_before_the_busy_ones() -> None:
    firm = process(5000, 0.0, "0-28", name="pmd", reasons=["restricted"], reserves="configured")
    made = plan(snapshot(plain(32), [], [*tasksets(90.0)[29:], firm]), "s", Request())
    assert (sets(made.roles), made.blocked) == (("29", "30", "31"), "")


def loaded(load: float, qemu: float = 0.0, mask: str = ALL, **more: object) -> Snapshot:
    """Two guests of 8 vCPUs, daemons with this load, and a QEMU whose own threads have another."""
    daemons = [process(300 + 10 * n, load / 4, mask, mask, name=f"daemon{n}") for n in range(4)]
    own = process(11_000, qemu, ALL, ALL, name="qemu", reasons=["guest"] * 2, immovable_reason="guest")
    guests = [guest(n, 8, cpus(ALL)) for n in (1, 2)]
    return snapshot(plain(32), guests, [*daemons, own] if qemu else daemons, **more)


def with_load(host: Snapshot, load: float) -> Snapshot:
    """The same host with another load of its four daemons."""
    daemons = (
        replace(each, load=load / 4, threads=tuple(replace(t, load=load / 8) for t in each.threads))
        for each in host.processes
    )
    return replace(host, processes=tuple(daemons))


@pytest.mark.fault(51)
@pytest.mark.parametrize(
    ("load", "qemu", "expected"),
    [
        (40.0, 0.0, ("0-3", "4-7", "8-31")),
        (380.0, 380.0, ("0-3", "4-7", "8-31")),
        (390.0, 0.0, ("0-7", "8-11", "12-31")),
        (1000.0, 0.0, ("0-11", "12-15", "16-31")),
        (1600.0, 0.0, ("0-11", "12-15", "16-31")),
        (40.0, 600.0, ("0-3", "4-11", "12-31")),
        (500.0, 500.0, ("0-7", "8-15", "16-31")),
        (1600.0, 1600.0, ("0-7", "8-15", "16-31")),
    ],
)
def test_automatic_sets_grow_with_the_measured_load(load: float, qemu: float, expected: tuple[str, str, str]) -> None:
    assert sets(plan(loaded(load, qemu), "s", Request()).roles) == expected


@pytest.mark.fault(51)
@pytest.mark.parametrize("sets_", [{}, {"housekeeping": "0-3", "emulator": "4-7"}])
def test_more_load_than_the_sets_can_have_is_told_and_counts_in_the_objective(sets_: dict[str, str]) -> None:
    made = plan(loaded(1600.0), "s", Request(**sets_))
    size = len(made.roles.housekeeping)
    assert made.objective.term("host_overload").after == pytest.approx(16 - size)
    assert f"busy host processes use 1600 % of one CPU, and the housekeeping set 0-{size - 1} has {size}" in the(
        made, "overload:"
    )


@pytest.mark.fault(51)
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("load", "qemu"), [(600.0, 0.0), (1600.0, 0.0), (500.0, 500.0), (40.0, 600.0)])
def test_a_second_plan_of_a_host_with_larger_sets_changes_nothing(load: float, qemu: float, by_hand: bool) -> None:
    host = loaded(load, qemu)
    made = plan(host, "s", Request())
    again = plan(applied(host, made, by_hand=by_hand), "s", Request())
    assert (again.changes, again.roles) == ((), made.roles)


@pytest.mark.fault(51)
def test_a_second_plan_beside_isolated_cpus_changes_nothing_after_the_plans_commands() -> None:
    """Beside isolated vCPUs, housekeeping and emulators divide more cores of a node."""
    cores = {0: [[c] for c in range(5)], 1: [[c] for c in range(5, 13)], 2: [[13], [14], [15], [16, 17], [18, 19]]}
    host = topology(cores, isolated="0")
    busy = snapshot(host, [guest(1, 1, host.online)], [process(300, 1600.0, "0-19")])
    made = plan(busy, "s", Request("isolated"))
    assert str(made.roles.housekeeping) == "1-3,5-7,13-14"
    again = plan(applied(busy, made, by_hand=True), "s", Request("isolated"))
    assert (again.changes, again.roles) == ((), made.roles)


@pytest.mark.fault(51)
@pytest.mark.parametrize(("later", "expected"), [(600.0, "0-7"), (380.0, "0-7"), (100.0, "0-7"), (780.0, "0-11")])
def test_a_set_stays_one_step_larger_than_needed(later: float, expected: str) -> None:
    host = loaded(600.0)
    made = plan(host, "s", Request())
    after = with_load(applied(host, made), later)
    assert str(plan(after, "s", Request()).roles.housekeeping) == expected


@pytest.mark.fault(51)
def test_a_set_that_is_two_steps_too_large_shrinks() -> None:
    host = loaded(1000.0)
    after = with_load(applied(host, plan(host, "s", Request())), 100.0)
    assert sets(plan(after, "s", Request()).roles) == ("0-3", "4-7", "8-31")


@pytest.mark.fault(51)
def test_recorded_sets_stay_and_the_overload_is_told() -> None:
    host = loaded(100.0)
    made = planner.plan_from_placement(host, "s", Request(), None)
    placement = record(made, host, None)
    later = planner.plan_from_placement(with_load(applied(host, made), 700.0), "s", Request(), placement)
    assert (later.changes, later.roles) == ((), made.roles)
    assert "plan a rebalance to let the set grow" in the(later, "overload:")


@pytest.mark.fault(51)
def test_a_plan_that_makes_the_objective_worse_says_so_and_is_not_for_a_policy() -> None:
    made = plan(loaded(1600.0), "s", Request(housekeeping="0-1", emulator="2-3"))
    assert made.objective.gain < 0
    before, after = (sum(getattr(term, side) * term.weight for term in made.objective.terms if term.tier == 6)
                     for side in ("before", "after"))  # fmt: skip
    assert f"tier 6 {before:.2f} -> {after:.2f}, " in f"{made.worse}, "
    assert after > before
    assert "most of it by host_overload 0.00 -> 14.00 CPUs" in made.worse


def test_a_plan_that_improves_the_objective_has_no_objection() -> None:
    made = plan(loaded(300.0), "s", Request())
    assert made.objective.gain > 0
    assert not [warning for warning in made.warnings if "objective" in warning]
    assert made.worse == ""
