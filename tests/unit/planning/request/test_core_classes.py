"""Hosts whose cores differ in speed: guests stay on cores of one class."""

from dataclasses import replace

import pytest
from data.field.core_classes import CORE_ULTRA_185H, I9_13900K, RK3399, RK3588, RYZEN_7900X3D
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import applied, cpus, guest, plain, process, snapshot, topology, with_classes
from support.made_up.anyhost import STRATEGIES

from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import CpuLimit
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.plan.request import Request
from pinner.planning.planner import plan
from pinner.planning.request.context import Context
from pinner.planning.request.core_classes import warnings
from pinner.planning.strategies import rules
from pinner.planning.strategies.shared_pool import SharedPool


def cores(pairs: int, singles: int) -> list[list[int]]:
    first = 2 * pairs
    return [*([c, c + 1] for c in range(0, first, 2)), *([c] for c in range(first, first + singles))]


CORES = cores(6, 8)
"""Six P cores of two threads, eight E cores of one."""


def hybrid(isolated: str = "") -> Topology:
    return with_classes(topology({0: CORES}, isolated=isolated), "0-11", "12-19")


FLOATING, ISOLATED = hybrid(), hybrid("4-19")
FAST, SLOW = cpus("0-11"), cpus("12-19")


def host(top: Topology, *vcpus: int):
    balanced = top.online - top.isolated
    return snapshot(top, [guest(number, count, balanced) for number, count in enumerate(vcpus)])


def used(made: Plan) -> dict[str, str]:
    """Whether the vCPUs of each guest have fast or slow CPUs, or both."""
    found: dict[str, CpuSet] = {}
    for want in made.wanted:
        if want.target.kind == "vcpu":
            found[want.target.name] = found.get(want.target.name, CpuSet()) | want.cpus
    return {name: "fast" if each <= FAST else "slow" if each <= SLOW else "both" for name, each in found.items()}


@pytest.mark.parametrize(
    ("strategy", "top", "vcpus", "expected"),
    [
        ("isolated", ISOLATED, (4, 4), "fast fast"),
        ("isolated", ISOLATED, (6, 4), "fast slow"),
        ("isolated", ISOLATED, (8, 5, 3), "fast slow slow"),
        ("isolated", ISOLATED, (6, 6, 2, 2), "fast slow fast slow"),
        ("isolated", hybrid("2-19"), (8, 7, 3), "slow fast fast"),
        ("numa-local", FLOATING, (4, 4), "fast fast"),
        ("numa-local", FLOATING, (10, 4), "fast slow"),
        ("numa-local", FLOATING, (8, 6, 4), "fast fast slow"),
        ("shared-pool", FLOATING, (4, 4), "fast fast"),
        ("shared-pool", FLOATING, (10, 4), "fast slow"),
    ],
)
def test_each_guest_gets_cores_of_one_class(strategy, top, vcpus, expected):
    before = host(top, *vcpus)
    made = plan(before, "s", Request(strategy))
    assert (made.unplaced, " ".join(used(made)[f"g{n}"] for n in range(len(vcpus)))) == ((), expected)
    assert not any("different speed" in warning for warning in made.warnings)
    assert plan(applied(before, made), "s", Request(strategy)).changes == ()


@pytest.mark.parametrize(
    ("strategy", "top", "vcpus"),
    [("isolated", ISOLATED, 10), ("numa-local", FLOATING, 14), ("shared-pool", FLOATING, 14)],
)
def test_a_plan_that_mixes_cores_in_one_guest_says_so(strategy, top, vcpus):
    made = plan(host(top, vcpus), "s", Request(strategy))
    assert (used(made), made.unplaced) == ({"g0": "both"}, ())
    assert [warning for warning in made.warnings if "different speed" in warning] == [
        "the vCPUs of g0 may run on cores of different speed: CPUs 0-11 are the host's fastest, CPUs 12-19 are slower"
    ]


def test_smt_isolate_takes_no_slow_core():
    made = plan(host(ISOLATED, 4, 1), "s", Request("isolated", smt="isolate"))
    assert used(made) == {"g0": "fast"}
    assert [left.target.name for left in made.unplaced] == ["g1"]
    assert "0 of the CPUs" in made.unplaced[0].why


def test_a_topology_whose_cores_are_alike_has_one_class():
    top = topology({0: CORES})
    assert top.core_classes == (top.online,)
    assert top.fingerprint != FLOATING.fingerprint


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    vcpus=st.lists(st.integers(1, 9), max_size=5),
    strategy=st.sampled_from(STRATEGIES),
    smt=st.sampled_from(["prefer", "isolate", "require"]),
)
def test_no_guest_is_mixed_silently_and_none_that_fits_is_left_out(vcpus, strategy, smt):
    top = ISOLATED if strategy == "isolated" else FLOATING
    before = host(top, *vcpus)
    made = plan(before, "s", Request(strategy, smt=smt))
    mixed = {name for name, each in used(made).items() if each == "both"}
    assert bool(mixed) == any("different speed" in warning for warning in made.warnings)
    if strategy not in ("exclusive", "isolated"):
        assert made.unplaced == ()
    elif strategy == "isolated" and smt == "prefer":
        assert bool(made.unplaced) <= (sum(vcpus) > 16)
    assert smt != "isolate" or strategy != "isolated" or set(used(made).values()) <= {"fast"}


@pytest.mark.parametrize(("count", "named"), [(3, "g0, g1, g2 may run"), (4, "g0, g1, g2 and 1 more may run")])
def test_the_warning_names_three_guests_and_counts_the_others(count, named):
    before = host(FLOATING, *[2] * count)
    mixed = (Wanted(each.vcpu_targets[0], cpus("11-12"), "so") for each in before.guests)
    (warning,) = warnings(before, mixed)
    assert f"the vCPUs of {named} on cores of different speed" in warning


def sets(made: Plan) -> tuple[str, str, str]:
    return str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)


def vcpus_of(made: Plan, name: str) -> list[str]:
    return [str(want.cpus) for want in made.wanted if want.target.kind == "vcpu" and want.target.name == name]


FLOATS = pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])


@FLOATS
@pytest.mark.parametrize(
    ("top", "vcpus", "roles", "places"),
    [
        (I9_13900K, (12, 8), ("16-19", "20-23", "0-15,24-31"), (["0-15"] * 12, ["24-31"] * 8)),
        (CORE_ULTRA_185H, (12, 6), ("20-21", "12-13", "0-11,14-19"), (["0-11"] * 12, ["14-19"] * 6)),
        (RK3399, (2, 2), ("0", "1", "2-5"), (["4-5"] * 2, ["2-3"] * 2)),
        (RK3588, (2, 4), ("0", "1", "2-7"), (["2-3"] * 2, ["4-5", "4-5", "6-7", "6-7"])),
        (RK3588, (2, 2), ("0", "1", "2-7"), (["4-5"] * 2, ["6-7"] * 2)),
        (RYZEN_7900X3D, (8, 12), ("0,12", "1,13", "2-11,14-23"), (["2-5,14-17"] * 8, ["6-11,18-23"] * 12)),
        (RYZEN_7900X3D, (16,), ("0,12", "1,13", "2-11,14-23"), (["2-11,14-23"] * 16,)),
    ],
)
def test_machines_of_the_field_get_the_sets_worked_out_by_hand(strategy, top, vcpus, roles, places):
    before = host(top, *vcpus)
    made = plan(before, "s", Request(strategy))
    assert (sets(made), made.unplaced) == (roles, ())
    assert [vcpus_of(made, f"g{number}") for number in range(len(vcpus))] == list(places)
    assert plan(applied(before, made), "s", Request(strategy)).changes == ()


@pytest.mark.parametrize(("vcpus", "kind"), [(12, "CPUs of one kind"), (20, "all CPUs")])
def test_the_reason_says_whether_a_guest_floats_over_one_class(vcpus, kind):
    made = plan(host(I9_13900K, vcpus), "s", Request("shared-pool"))
    reasons = {want.reason for want in made.wanted if want.target.kind == "vcpu"}
    assert reasons == {f"floats over {kind} that housekeeping and emulators leave"}


def test_a_guest_that_no_cluster_holds_shares_one_or_is_left_out():
    before = host(RK3399, 6)
    assert vcpus_of(plan(before, "s", Request("shared-pool")), "g0") == ["4-5"] * 6
    (unplaced,) = plan(before, "s", Request("numa-local")).unplaced
    assert unplaced.why.endswith("no NUMA node has more than 2 of the CPUs that vCPUs may use")


BOTH_BOUNDS = (
    "the guest has CPUs 3-4 from its definition (<vcpu cpuset>); each vCPU stays in one cluster (0-3, 4-5, 6-7), and "
    "all in clusters of one kind: CPUs 4"
)


@FLOATS
def test_a_restriction_across_clusters_puts_the_vcpus_in_one_and_says_that_they_share_it(strategy):
    before = snapshot(RK3588, [guest(0, 2, cpus("3-4"), restriction=cpus("3-4")), guest(1, 2, RK3588.online)])
    made = plan(before, "s", Request(strategy))
    assert (vcpus_of(made, "g0"), made.unplaced) == (["4"] * 2, ())
    reasons = {want.reason for want in made.wanted if want.target.name == "g0" and want.target.kind == "vcpu"}
    assert reasons == {f"{BOTH_BOUNDS}, which 2 vCPUs share"}
    assert plan(applied(before, made), "s", Request(strategy)).changes == ()


@FLOATS
def test_the_cluster_of_the_restriction_with_most_cpus_is_shared(strategy):
    before = snapshot(RK3588, [guest(0, 3, cpus("2-4"), restriction=cpus("2-4"))])
    made = plan(before, "s", Request(strategy))
    assert (vcpus_of(made, "g0"), made.unplaced) == (["2-3"] * 3, ())


def test_isolated_vcpus_share_no_cpu_and_the_reason_names_both_bounds():
    top = replace(RK3588, cpus=tuple(replace(cpu, isolated=cpu.id > 2) for cpu in RK3588.cpus))
    host = snapshot(top, [guest(0, 2, cpus("1-4"), restriction=cpus("1-4"))])
    (left,) = plan(host, "s", Request("isolated", housekeeping="0", emulator="1")).unplaced
    assert left.why.startswith("asked for 2 CPUs, 1 are free: the guest has CPUs 1-4 from its definition")
    assert "each vCPU stays in one cluster (0-3, 4-5, 6-7), and all in clusters of one kind: CPUs 4;" in left.why


def test_a_guest_that_gets_slower_cores_is_named_until_it_has_them():
    before = host(I9_13900K, 12, 8)
    made = plan(before, "s", Request("numa-local"))
    assert "the vCPUs of g1 get slower cores (CPUs 16-31): the faster ones have no room for all guests" in made.warnings
    assert plan(applied(before, made), "s", Request("numa-local")).warnings == ()


@FLOATS
def test_automatic_sets_leave_the_slowest_cores_to_a_guest_that_has_them(strategy):
    before = snapshot(CORE_ULTRA_185H, [guest(0, 2, cpus("20-21")), guest(1, 4, CORE_ULTRA_185H.online)])
    made = plan(before, "s", Request(strategy))
    assert sets(made) == ("12-13", "14-15", "0-11,16-21")
    assert vcpus_of(made, "g0") == ["20-21"] * 2
    assert plan(applied(before, made), "s", Request(strategy)).changes == ()


def test_a_guest_on_slow_cores_moves_where_automatic_sets_take_only_a_part():
    made = plan(snapshot(I9_13900K, [guest(0, 12, cpus("16-31"))]), "s", Request("numa-local"))
    assert (sets(made)[0], vcpus_of(made, "g0")) == ("16-19", ["0-15"] * 12)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    top=st.sampled_from([I9_13900K, CORE_ULTRA_185H, RK3399, RK3588, RYZEN_7900X3D]),
    strategy=st.sampled_from(STRATEGIES),
    guests=st.lists(st.tuples(st.integers(1, 14), st.integers(0, 3)), max_size=6),
    load=st.sampled_from([0, 50, 700]),
)
def test_a_second_plan_of_a_machine_of_the_field_changes_nothing(top, strategy, guests, load):
    """Guests float over all CPUs or over one domain; the host's load makes the sets grow."""
    if strategy in ("isolated", "optimal"):
        top = replace(top, cpus=tuple(replace(cpu, isolated=cpu.id > 1) for cpu in top.cpus))
    balanced = top.online - top.isolated
    masks = [balanced, *(domain & balanced for domain in top.core_domains if domain & balanced)]
    placed = [guest(n, vcpus, masks[domain % len(masks)]) for n, (vcpus, domain) in enumerate(guests)]
    before = snapshot(top, placed, [process(900, load, str(balanced))])
    made = plan(before, "s", Request(strategy))
    assert plan(applied(before, made), "s", Request(strategy)).changes == ()


SMALL = with_classes(plain(10), "0-7", "8-9")
EIGHT_SLOW = with_classes(topology({0: cores(8, 8)}), "0-15", "16-23")
FOUR_SLOW = with_classes(topology({0: cores(6, 4)}), "0-11", "12-15")
CONFINED_FAST = guest(0, 12, cpus("0-15"), restriction=cpus("0-15"))
IN_A_SLICE = guest(1, 1, cpus("0-7"), cpu_limits=(CpuLimit("machine.slice", cpus("0-7")),))


@FLOATS
@pytest.mark.parametrize(
    ("before", "load", "roles"),
    [
        # Slow CPU 8 is the guest's; emulators take it no sooner than CPUs of the slice.
        (snapshot(SMALL, [guest(0, 1, cpus("8")), IN_A_SLICE]), 40, ("9", "0", "1-8")),
        # Both sets need more than the guest's CPUs leave: it moves, and the next plan takes the same.
        (snapshot(EIGHT_SLOW, [CONFINED_FAST, guest(1, 4, cpus("16-23")), guest(2, 12, cpus("0-23"))]), 300, None),
        # The emulators' affinity is that of a set of two steps. Then housekeeping's is that of a set of one step.
        (snapshot(FOUR_SLOW, [guest(0, 1, cpus("0-3"))]), 300, None),
    ],
)
def test_a_second_plan_takes_the_same_slow_cpus(strategy, before, load, roles):
    before = replace(before, processes=(process(900, load, str(before.topology.online)),))
    made = plan(before, "s", Request(strategy))
    assert roles in (None, sets(made))
    again = plan(applied(before, made), "s", Request(strategy))
    assert (again.changes, again.roles) == ((), made.roles)


@pytest.mark.parametrize("strategy", ["isolated", "optimal"])
def test_a_guest_that_gets_isolated_cpus_keeps_no_slow_ones(strategy):
    """It leaves CPU 12 to the sets; the next plan takes the same."""
    top = with_classes(topology({0: cores(6, 4)}, isolated="10-11"), "0-11", "12-15")
    before = snapshot(top, [guest(1, 1, cpus("12"))])
    made = plan(before, "s", Request(strategy))
    assert (made.roles.housekeeping, made.roles.emulator) == (cpus("12-13"), cpus("14-15"))
    again = plan(applied(before, made), "s", Request(strategy))
    assert (again.changes, again.roles) == ((), made.roles)


@pytest.mark.parametrize("top", [RK3399, RK3588])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("vcpus", [(1, 3, 5), (8,), (4, 4, 2)])
def test_no_vcpu_crosses_clusters(top, strategy, vcpus):
    isolated = replace(top, cpus=tuple(replace(cpu, isolated=cpu.id > 1) for cpu in top.cpus))
    made = plan(host(isolated if strategy in ("isolated", "optimal") else top, *vcpus), "s", Request(strategy))
    for want in made.wanted:
        assert want.target.kind != "vcpu" or any(want.cpus <= cluster for cluster in top.clusters)
    classes = {name: {cpu.core_class for cpu in top.cpus if cpu.id in union_of(made, name)} for name in used(made)}
    assert all(len(each) == 1 for each in classes.values())


def union_of(made: Plan, name: str) -> CpuSet:
    return CpuSet.of(cpu for text in vcpus_of(made, name) for cpu in cpus(text))


def test_an_answer_that_lets_a_vcpu_cross_clusters_is_refused():
    before = host(RK3399, 2)
    loose = replace(before, topology=replace(RK3399, clusters=()))
    answer = SharedPool().place(Context.of(loose, Request()))
    widened = replace(
        answer,
        wanted=tuple(replace(w, cpus=cpus("2-5")) if w.target.kind == "vcpu" else w for w in answer.wanted),
    )
    wrong = next(rules.broken(widened, Context.of(before, Request())))
    assert wrong.endswith("is placed on CPUs 2-5, but a KVM vCPU must stay in one cluster")
