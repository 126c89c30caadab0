"""A plan that makes the objective worse than the host as it is: other sizes of the sets, and the words."""

from contextlib import suppress
from dataclasses import replace

import pytest
from data.field.core_classes import RK3399, RK3588
from data.field.worse_plans import (
    BESIDE_NOVA,
    BETWEEN_GUESTS,
    DEMO,
    SMALL_SETS,
    STARVED_DAEMON,
    TWO_BUSY_CPUS,
    documented,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hosts import applied, cpus, guest, plain, process, snapshot, topology
from support.made_up.generated_hosts import generated
from support.made_up.planned_hosts import host_of

from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.guest.guest import NovaIdentity
from pinner.model.machine.topology import Topology
from pinner.model.plan.objective import COST, LEAST, harm
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.available import slices
from pinner.planning.objective import worsening
from pinner.planning.objective_terms import ObjectiveMeasure
from pinner.planning.placement import record
from pinner.planning.planner import plan
from pinner.planning.request.context import Context

LOADED = snapshot(plain(32), [guest(1, 4, cpus("0-31"))], [process(300, 600.0, *["0-31"] * 16)])


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_where_no_sizes_help_the_host_stays_as_it_is(strategy: str) -> None:
    made = plan(TWO_BUSY_CPUS, "s", Request(strategy))
    assert made.worse == (
        "tier 6 17.30 -> 18.00, most of it by vcpu_vs_emulator 1.50 -> 3.00 CPUs; "
        "no sizes of the automatic sets make it better; leave the host as it is"
    )
    assert made.changes
    assert not [warning for warning in made.warnings if "objective" in warning]


@pytest.mark.parametrize("host", DEMO)
def test_the_plan_of_the_demo_is_not_worse(host: Snapshot) -> None:
    request = Request(guests=("g1", "g2", "g3", "g4"), processes=("900",))
    made = plan(host, "s", request)
    assert (made.worse, str(made.roles.housekeeping), str(made.roles.vcpu)) == ("", "0", "1")


@pytest.mark.parametrize("load", [tenth / 10 for tenth in range(1, 11)])
def test_the_documented_host_has_the_documented_sets_at_any_load_of_its_vcpus(load: float) -> None:
    made = plan(documented(load), "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == ("0-3", "4-7", "8-31")
    assert made.worse == ""
    overcommit, overload = (made.objective.term(name) for name in ("overcommit", "vcpu_overload"))
    assert (overcommit.excused, overload.excused) == (8.0, pytest.approx(overload.after - overload.before))


@pytest.mark.parametrize(
    ("housekeeping", "emulator"), [("0-3", "4-7"), ("24-27", "28-31"), ("auto", "28-31"), ("0-1", "2-3")]
)
def test_a_list_is_excused_for_as_many_cpus_as_automatic_sets_have(housekeeping: str, emulator: str) -> None:
    made = plan(documented(0.9), "s", Request(housekeeping=housekeeping, emulator=emulator))
    assert (made.worse, harm(made.objective.decisive()) < 0) == ("", True)


def test_a_list_is_excused_for_as_many_cpus_of_a_vcpu_as_automatic_sets_have() -> None:
    """The guest has CPUs 0-9. Automatic sets have none of them (10-17); these lists leave it 8-9."""
    host = snapshot(plain(32), [guest(1, 4, cpus("0-9"), restriction=cpus("0-9"))], [process(300, 40.0, "0-31")])
    made = plan(host, "s", Request(housekeeping="0-3", emulator="4-7"))
    assert made.worse == (
        "tier 6 0.46 -> 2.00, most of it by overcommit 0.00 -> 2.00 CPUs; plan with --housekeeping auto --emulator auto"
    )


@pytest.mark.parametrize("load", [0.05, 0.5])
def test_a_list_of_more_cpus_than_automatic_sets_have_counts_for_the_others(load: float) -> None:
    """32 vCPUs on two CPUs: 30 of overcommit, of which the 8 automatic CPUs make 8."""
    made = plan(documented(load), "s", Request(housekeeping="0-27", emulator="28-29"))
    term = made.objective.term("overcommit")
    assert (term.after, term.excused) == (30.0, 8.0)
    assert ", of which 8.00 is excused, most of it by overcommit 0.00 -> 30.00 CPUs" in made.worse
    assert made.worse.endswith("plan with --housekeeping auto --emulator auto")


def test_overcommit_between_guests_is_not_excused() -> None:
    made = plan(BETWEEN_GUESTS, "s", Request())
    assert made.objective.term("overcommit").excused == 0
    assert "most of it by overcommit 3.00 -> 3.50 CPUs" in made.worse


def test_vcpus_may_give_up_cpus_of_another_owner() -> None:
    made = plan(BESIDE_NOVA, "s", Request(housekeeping="0-3", emulator="4-7"))
    assert (made.worse, made.objective.term("overcommit").excused) == ("", 16.0)


def test_the_words_name_the_term_that_counts() -> None:
    """Overcommit rises by 8, all excused. The daemon of 11 threads wants 11 CPUs, and has 4."""
    daemon = process(300, 110.0, *["0-31"] * 11)
    daemon = replace(daemon, threads=tuple(replace(each, run_ns=1, delay_ns=9) for each in daemon.threads))
    host = snapshot(plain(32), [guest(number, 16, cpus("0-31")) for number in (1, 2)], [daemon])
    made = plan(host, "s", Request(housekeeping="0-3", emulator="4-7"))
    assert made.objective.term("overcommit").excused == made.objective.term("overcommit").rise == 8
    assert ", of which 8.00 is excused, most of it by host_overload 0.00 -> 7.00 CPUs" in made.worse


def test_sets_of_another_size_are_taken_where_those_of_the_load_make_it_worse() -> None:
    made = plan(STARVED_DAEMON, "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == ("0-7", "8-11", "12-31")
    assert made.worse == ""
    assert made.objective.gain > 0
    again = plan(applied(STARVED_DAEMON, made), "s", Request())
    assert (again.changes, again.roles) == ((), made.roles)


@pytest.mark.parametrize(("vcpus", "sets", "unplaced"), [(11, "0-3,16-19|4,20", 0), (12, "0-3,16-19|4-5,20-21", 1)])
def test_of_other_sizes_those_are_taken_that_leave_out_fewest_guests(vcpus: int, sets: str, unplaced: int) -> None:
    """Two nodes of 16 CPUs: two steps of housekeeping leave 10 beside a step of emulators, 11 beside one core."""
    host = replace(STARVED_DAEMON, topology=plain(32, 2), guests=(guest(1, vcpus, cpus("0-15"), memory={0: 1}),))
    made = plan(host, "s", Request("numa-local"))
    assert (f"{made.roles.housekeeping}|{made.roles.emulator}", len(made.unplaced)) == (sets, unplaced)
    assert made.worse == ""


def test_a_guest_is_explained_with_the_sets_of_its_plan() -> None:
    from pinner.planning.questions.explanation import explain_placement

    assert str(explain_placement(STARVED_DAEMON, Request(), "g1").cpus) == "12-31"


def test_automatic_sets_are_named_where_lists_are_worse() -> None:
    made = plan(LOADED, "s", Request(housekeeping="0-1", emulator="2-3"))
    assert made.worse.endswith("; plan with --housekeeping auto --emulator auto")


@pytest.mark.parametrize(("top", "vcpus", "excused"), [(RK3399, 4, 2.0), (RK3399, 6, 4.0), (RK3588, 6, 2.0)])
def test_vcpus_that_cross_clusters_are_excused_for_the_cpus_of_the_other_cluster(
    top: Topology, vcpus: int, excused: float
) -> None:
    host = snapshot(top, [guest(1, vcpus, top.online)], [process(300, 40.0, str(top.online))])
    made = plan(host, "s", Request())
    assert (made.worse, made.objective.term("overcommit").excused) == ("", excused)
    assert plan(applied(host, made), "s", Request()).changes == ()


def test_a_cluster_excuses_no_guest_that_the_plan_moves_to_another_one() -> None:
    """Two guests of two vCPUs: alone in its cluster each, then both on 4-5."""
    top, low, high = RK3399, cpus("2-3"), cpus("4-5")
    host = snapshot(top, [guest(1, 2, low), guest(2, 2, high)])
    measure = ObjectiveMeasure.of(host, 0.0)
    planned = {vcpu.thread.tid: high for each in host.guests for vcpu in each.vcpus if vcpu.thread}
    kept = measure.keeping(planned, top.online.__and__)
    assert [str(each) for each in kept.values()] == ["2-3", "2-3", "4-5", "4-5"]


def test_an_alternative_leaves_out_no_more_guests_than_the_plan() -> None:
    """numa-local leaves the only guest out: no node has two CPUs for vCPUs."""
    host = snapshot(plain(4, 2), [guest(1, 2, cpus("0-3"))], [process(300, 40.0, "0-3")])
    assert plan(host, "s", Request("numa-local")).unplaced
    made = plan(host, "s", Request())
    assert made.worse.startswith("tier 6 0.80 -> 1.00, ") and made.worse.endswith("; leave the host as it is")


def test_a_list_is_not_resized() -> None:
    made = plan(LOADED, "s", Request(housekeeping="0-1"))
    assert made.worse.endswith(
        "; no sizes of the automatic sets make it better; plan with --housekeeping auto --emulator auto"
    )
    assert str(made.roles.housekeeping) == "0-1"


def test_a_set_smaller_than_a_step_is_taken_where_that_alone_makes_it_better() -> None:
    made = plan(SMALL_SETS, "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == ("0", "1", "2-31")
    assert made.worse == ""
    assert plan(applied(SMALL_SETS, made), "s", Request()).changes == ()


def test_a_set_smaller_than_a_step_stays_where_a_larger_one_only_raises_the_objective() -> None:
    """Once the vCPUs have given up CPUs, a larger set is excused; it was worse than the host before the first plan."""
    nova = NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "isolated"})
    guests = [guest(1, 3, cpus("0-15")), guest(2, 4, cpus("0-15")), guest(3, 4, cpus("0-15"), nova=nova)]
    host = snapshot(plain(16, isolated="7-15"), guests, [process(500, 20.0, "0-15")])
    made = plan(host, "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.emulator), made.worse) == ("0", "1", "")
    assert plan(applied(host, made), "s", Request()).changes == ()


def test_a_plan_from_a_placement_names_no_alternative() -> None:
    """A policy makes one at each observation, and the alternatives cost some plans more."""
    light = replace(LOADED, processes=(process(300, 100.0, *["0-31"] * 16),))
    placement = record(planner.plan_from_placement(light, "s", Request(), None), light, None)
    later = planner.plan_from_placement(LOADED, "s", Request(), placement)
    assert later.worse == worsening(later.objective) != ""
    first = planner.plan_from_placement(TWO_BUSY_CPUS, "s", Request(), None)
    assert first.worse == f"{worsening(first.objective)}; no sizes of the automatic sets make it better"


def test_reasons_tell_which_cpus_are_shared() -> None:
    """Two CPUs: QEMU's own threads are on CPU 1 with the vCPU. 32 CPUs: each role has its own."""
    small = {want.target.kind: want.reason for want in plan(TWO_BUSY_CPUS, "s", Request()).wanted}
    assert small["emulator"] == "QEMU's own threads run on CPUs 1, which vCPUs use too"
    assert small["iothread"] == "QEMU's I/O work runs beside the emulator, on CPUs 1, which vCPUs use too"
    assert small["vcpu"] == "floats over all CPUs for vCPUs; others use CPUs 1 too"
    large = {want.target.kind: want.reason for want in plan(STARVED_DAEMON, "s", Request()).wanted}
    assert large["emulator"] == "QEMU's own threads run off the vCPUs' CPUs"
    assert large["vcpu"] == "floats over all CPUs that housekeeping and emulators leave"


def process_reasons(host: Snapshot, **parameters: object) -> set[str]:
    made = plan(host, "s", Request(**parameters))
    return {want.reason.partition(": ")[2] for want in made.wanted if want.target.kind == "process"}


def test_the_reason_of_a_process_tells_which_cpus_it_shares_with_guests() -> None:
    """Nodes of one core have one set for all; so has a skipped guest the CPUs of housekeeping (0-3)."""
    top = topology({node: [[node, node + 8]] for node in range(8)})
    busy = process(300, 60.0, "0-15", name="ceph-osd")
    assert process_reasons(snapshot(top, [guest(1, 2, top.online)], [busy])) == {"moves where vCPUs use CPUs 0-15 too"}
    assert process_reasons(STARVED_DAEMON) == {"moves off the guests' CPUs"}
    skipped = guest(2, 2, cpus("2-9"), excluded=True)
    host = snapshot(plain(32), [guest(1, 2, cpus("0-31")), skipped], [process(300, 60.0, "0-31", name="ceph-osd")])
    assert process_reasons(host) == {"moves where vCPUs use CPUs 2-3 too"}


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_of_a_random_host_is_refused_exactly_where_terms_rise_that_are_not_excused(seed: int) -> None:
    host = host_of(generated(seed, friendly=bool(seed % 2)))
    for request in (Request(), Request("numa-local"), Request(housekeeping=str(host.topology.online.lowest))):
        with suppress(Invalid, NoFit, NovaConflict):
            made = plan(host, "s", request)
            tiers = [[term for term in tier if term.asked and term.tier < COST] for tier in made.objective.tiers()]
            sums = [sum(term.weight * (term.after - term.before - term.excused) for term in tier) for tier in tiers]
            first = next((value for value in sums if abs(value) >= LEAST), 0.0)
            assert bool(made.worse) == (first > 0 and bool(made.changes))
            assert all(0 <= term.excused <= max(term.after - term.before, 0) + 1e-6 for term in made.objective.terms)


@settings(max_examples=30, deadline=None)
@given(vcpus=st.integers(1, 40), housekeeping=st.integers(1, 20), emulator=st.integers(1, 11))
def test_a_list_is_never_excused_for_more_than_automatic_sets(vcpus: int, housekeeping: int, emulator: int) -> None:
    """vCPUs that float over 32 CPUs. Automatic sets take 8."""
    host = snapshot(plain(32), [guest(1, vcpus, cpus("0-31"))], [process(300, 40.0, "0-31")])
    first = f"0-{housekeeping - 1}"
    made = plan(host, "s", Request(housekeeping=first, emulator=f"{housekeeping}-{housekeeping + emulator - 1}"))
    taken = min(housekeeping + emulator, 8)
    most = max(vcpus - (32 - taken), 0) - max(vcpus - 32, 0)
    assert made.objective.term("overcommit").excused == pytest.approx(most, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 2)), min_size=1, max_size=3),
    least=st.integers(1, 3),
    steps=st.sampled_from(list(slices.every_size(Request()))),
)
def test_each_role_has_its_minimum_where_a_node_has_room_for_three_sets(
    nodes: list[tuple[int, int]], least: int, steps: slices.Steps
) -> None:
    """Whatever the sizes are. Of more than two small nodes, some give housekeeping no CPU."""
    every, first = {}, 0
    for number, (cores, threads) in enumerate(nodes):
        every[number] = [list(range(core, core + threads)) for core in range(first, first + cores * threads, threads)]
        first += cores * threads
    host = snapshot(topology(every), [guest(1, 1, cpus(f"0-{first - 1}"))], minimum_cores=least)
    allocatable = Context.of(host, Request()).allocatable
    by_node = slices.of_nodes(allocatable, Request(), allocatable.shared, steps)
    for node, (cores, _) in enumerate(nodes):
        if cores >= 3 * least:
            part = by_node[node]
            sets = (part.housekeeping, part.emulator, part.vcpu)
            sets = sets if part.housekeeping or node < 2 else sets[1:]
            assert min(map(allocatable.count_cores, sets)) >= least
            assert sum(map(len, sets)) == len(host.topology.online_by_node[node])
