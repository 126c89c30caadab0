"""Sibling threads of cores where vCPUs float: what ``smt`` leaves to them, and the term of vCPUs that share cores."""

import pytest
from support.hosts import applied, cpus, guest, interleaved, plain, process, snapshot, topology, with_classes

from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request, Smt
from pinner.model.snapshot import Snapshot
from pinner.planning.objective import harmed
from pinner.planning.planner import plan
from pinner.planning.questions.capacity import capacity

HOST = interleaved(16, 2)
"""Cores c, c + 16; the even ones are on node 0. Housekeeping is 0-1,16-17, emulators are 2-3,18-19, and each node has 6
cores for vCPUs: 4, 6, ..., 14 with 20, 22, ..., 30, and 5, 7, ..., 15 with 21, 23, ..., 31."""


def vcpus(made: Plan) -> dict[str, str]:
    return {want.target.name: str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"}


def paired(host: Snapshot, request: Request) -> float:
    return plan(host, "s", request).objective.term("paired_vcpus").after


@pytest.mark.parametrize(
    ("strategy", "smt", "expected"),
    [
        ("shared-pool", "prefer", "4-15,20-31"),
        ("shared-pool", "isolate", "4-15"),
        ("shared-pool", "require", "4-15,20-31"),
        ("numa-local", "prefer", "4,6,8,10,12,14,20,22,24,26,28,30"),
        ("numa-local", "isolate", "4,6,8,10,12,14"),
        ("numa-local", "require", "4,6,8,10,12,14,20,22,24,26,28,30"),
    ],
)
def test_smt_says_over_which_threads_a_guest_floats(strategy: str, smt: Smt, expected: str) -> None:
    host = snapshot(HOST, [guest(1, 6, HOST.online)])
    made = plan(host, "s", Request(strategy, smt=smt))
    assert vcpus(made) == {"g1": expected}
    assert plan(applied(host, made), "s", made.request).changes == ()


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_guest_with_more_vcpus_than_cores_has_the_reason(strategy: str) -> None:
    """Of shared-pool, 12 cores are enough for 8 vCPUs, of numa-local 6 are not."""
    host = snapshot(HOST, [guest(1, 8, HOST.online)])
    made = plan(host, "s", Request(strategy, smt="isolate"))
    assert [left.why for left in made.unplaced] == {
        "shared-pool": [],
        "numa-local": ["asked for 8 CPUs, 6 are free: no NUMA node has more than 6 of the CPUs that vCPUs may use"],
    }[strategy]


def test_isolate_tells_what_it_costs() -> None:
    made = plan(snapshot(HOST, [guest(1, 6, HOST.online)]), "s", Request(smt="isolate"))
    assert "smt isolate: 12 of the 24 CPUs for vCPUs stay idle, so that each vCPU may have a core" in made.warnings


def test_a_guest_that_may_use_only_second_threads_gets_these() -> None:
    host = snapshot(HOST, [guest(1, 4, cpus("20-31"), restriction=cpus("20-31"))])
    assert vcpus(plan(host, "s", Request(smt="isolate"))) == {"g1": "20-31"}


def test_require_leaves_out_cores_of_one_thread() -> None:
    """CPUs 28-31 have lost their siblings 12-15."""
    top = interleaved(16, 2, offline="12-15")
    made = plan(snapshot(top, [guest(1, 2, top.online)]), "s", Request(smt="require"))
    assert vcpus(made) == {"g1": str(made.roles.vcpu - cpus("28-31"))}


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_require_without_siblings_places_no_guest(strategy: str) -> None:
    top = plain(16)
    made = plan(snapshot(top, [guest(1, 2, top.online)]), "s", Request(strategy, smt="require"))
    assert [left.why for left in made.unplaced] == ["smt require leaves 0 of CPUs 4-15 for 2 vCPUs"]


def test_isolate_uses_only_the_fastest_class() -> None:
    top = with_classes(interleaved(16, 1), "0-7,16-23", "8-15,24-31")
    made = plan(snapshot(top, [guest(1, 2, top.online)]), "s", Request(smt="isolate"))
    assert cpus(vcpus(made)["g1"]) <= cpus("0-7")


def test_capacity_counts_a_core_for_each_vcpu() -> None:
    host = snapshot(HOST, [guest(1, 4, HOST.online)])
    room = {each.strategy: each.free_vcpus for each in capacity(host, Request(smt="isolate")).strategies}
    assert room["shared-pool"] == 12 - 4


def test_vcpus_on_both_threads_of_a_core_count() -> None:
    """16 vCPUs pinned to both threads of 8 cores, where the host has 16: 8 vCPUs share. With a core each: none."""
    both = [str(cpu) for core in range(8) for cpu in (core, core + 16)]
    own = [str(core) for core in range(16)]
    measured = [snapshot(HOST, [guest(1, 16, HOST.online, pins=pins)]) for pins in (both, own)]
    before = [plan(each, "s", Request()).objective.term("paired_vcpus").before for each in measured]
    assert before == [8.0, 0.0]


def test_what_no_placement_avoids_does_not_count() -> None:
    """24 vCPUs on a host of 16 cores: 8 share in any case; on all 8 cores of one node their guest has overcommit."""
    top = HOST
    here = snapshot(top, [guest(1, 24, top.online)])
    assert plan(here, "s", Request()).objective.term("paired_vcpus").before == 0.0
    bound = snapshot(top, [guest(1, 16, cpus("0-7,16-23"), restriction=cpus("0-7,16-23"))])
    assert plan(bound, "s", Request()).objective.term("paired_vcpus").before == 0.0


@pytest.mark.parametrize(("load", "expected"), [(40.0, 0.0), (75.0, 4.0), (100.0, 8.0)])
def test_of_a_guest_with_load_the_load_counts(load: float, expected: float) -> None:
    """Two vCPUs of 75 % want 1.5 of their core: half a CPU beyond its first thread, on 8 cores."""
    both = [str(cpu) for core in range(8) for cpu in (core, core + 16)]
    qemu = process(11_010, 16 * load, *both, immovable_reason="guest")
    host = snapshot(HOST, [guest(1, 16, HOST.online, pins=both)], [qemu])
    assert plan(host, "s", Request()).objective.term("paired_vcpus").before == pytest.approx(expected)


def test_a_request_for_whole_cores_does_not_count_their_pairs() -> None:
    made = plan(snapshot(HOST, [guest(1, 8, HOST.online)]), "s", Request("numa-local", smt="require"))
    assert made.objective.term("paired_vcpus").weight == 0.0


def test_numa_local_prefers_the_node_that_has_a_core_for_each_vcpu() -> None:
    """Node 1 has lost the second threads of its cores: node 0 has 8 CPUs in 4 cores, node 1 has 5 in 5."""
    top = interleaved(16, 2, offline="17,19,21,23,25,27,29,31")
    host = snapshot(top, [guest(1, 5, top.online, memory={})])
    made = plan(host, "s", Request("numa-local", housekeeping="0,16,2,18,4,20,1,3", emulator="6,22,5"))
    assert (vcpus(made), made.objective.term("paired_vcpus").after) == ({"g1": "7,9,11,13,15"}, 0.0)


def test_the_reason_names_the_shared_cores() -> None:
    made = plan(snapshot(HOST, [guest(1, 8, HOST.online)]), "s", Request("numa-local"))
    whys = {want.reason for want in made.wanted if want.target.kind == "vcpu"}
    assert whys == {"node 0 has 100% of the guest's memory; 8 vCPUs share 6 cores"}
    assert paired(snapshot(HOST, [guest(1, 8, HOST.online)]), Request("numa-local")) == 2.0


def test_vcpus_that_give_up_cores_for_sets_make_no_plan_worse() -> None:
    """The guest has all 8 cores of node 0, and its emulator is on node 1: nothing disturbs it. The sets take two of the
    cores, and 8 vCPUs share the other 6."""
    alone = guest(1, 8, cpus("3"), pins=[str(HOST.online_by_node[0])] * 8)
    made = plan(snapshot(HOST, [alone]), "s", Request("numa-local"))
    term = made.objective.term("paired_vcpus")
    assert (term.before, term.after, term.excused, harmed(made.objective)) == (0.0, 2.0, 2.0, ())


_CORES = [*([core, core + 16] for core in range(8)), *([cpu] for cpu in range(8, 16))]
E_CORES = with_classes(topology({0: _CORES}), "0-7,16-23", "8-15")
"""P cores 0-7 with 16-23, E cores 8-15."""


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_core_of_one_thread_satisfies_isolate(strategy: str) -> None:
    on_e_cores = guest(1, 4, cpus("8-15"), restriction=cpus("8-15"))
    made = plan(snapshot(E_CORES, [on_e_cores]), "s", Request(strategy, smt="isolate"))
    assert cpus(vcpus(made)["g1"]) <= cpus("8-15")


def test_where_no_core_has_a_second_thread_isolate_changes_nothing() -> None:
    """Two big cores and six little ones: four vCPUs have no room on the big ones."""
    top = with_classes(plain(8), "6-7", "0-5", clusters=("0-5", "6-7"))
    host = snapshot(top, [guest(1, 4, top.online), guest(2, 2, top.online)])
    plans = [plan(host, "s", Request("numa-local", smt=smt)) for smt in ("prefer", "isolate")]
    assert vcpus(plans[0]) == vcpus(plans[1])
    isolated = plain(8, isolated="4-7")
    alone = snapshot(isolated, [guest(1, 4, cpus("0-3"))])
    assert plan(alone, "s", Request("isolated", smt="isolate")).unplaced == ()


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_bound_guest_without_enough_such_cpus_is_left_out_with_the_reason(strategy: str) -> None:
    on_e_cores = guest(1, 4, cpus("8-15"), restriction=cpus("8-15"))
    made = plan(snapshot(E_CORES, [on_e_cores]), "s", Request(strategy, smt="require"))
    (left,) = made.unplaced
    bound = "the guest has CPUs 8-15 from its definition (<vcpu cpuset>)"
    assert left.why == f"{bound}; smt require leaves 0 of CPUs {made.roles.vcpu & cpus('8-15')} for 4 vCPUs"
    pair = guest(2, 4, cpus("4-5,20-21"), restriction=cpus("4-5,20-21"))
    (left,) = plan(snapshot(HOST, [pair]), "s", Request(strategy, smt="isolate")).unplaced
    assert left.why.endswith("smt isolate leaves 2 of CPUs 4-5,20-21 for 4 vCPUs")
