"""The strategy isolated: the CPU of each vCPU, and the boot arguments that the kernel needs."""

from dataclasses import replace

import pytest
from data.field.local import wider_than_a_node as wide
from support.hosts import GIB, KERNEL, applied, cpus, guest, interleaved, plain, process, snapshot, topology

from pinner.model.guest.guest import NovaIdentity
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan


def vcpu_cpus(made: Plan) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for want in made.wanted:
        if want.target.kind == "vcpu":
            found.setdefault(want.target.name, []).extend(want.cpus)
    return found


SMT = interleaved(16, nodes=1, isolated="4-15,20-31", nohz_full="4-15,20-31")
"""Cores 0-3 for the host, twelve cores of two threads (4 and 20, 5 and 21, ...) for vCPUs."""


@pytest.mark.parametrize(
    ("smt", "expected"),
    [
        ("prefer", {"g1": [4, 20, 5, 21], "g2": [6, 22, 7], "g3": [8]}),
        ("require", {"g1": [4, 20, 5, 21], "g2": [6, 22, 7], "g3": [8]}),
        ("isolate", {"g1": [4, 5, 6, 7], "g2": [8, 9, 10], "g3": [11]}),
    ],
)
def test_vcpus_use_hardware_threads_as_the_smt_policy_says(smt: str, expected: dict[str, list[int]]) -> None:
    host = snapshot(SMT, [guest(1, 4, cpus("0-3")), guest(2, 3, cpus("0-3")), guest(3, 1, cpus("0-3"))])
    made = plan(host, "s", Request("isolated", smt=smt))
    assert vcpu_cpus(made) == expected
    assert plan(applied(host, made), "s", Request("isolated", smt=smt)).changes == ()


def test_smt_require_without_hardware_threads_places_no_guest() -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 4, cpus("0-7"))])
    made = plan(host, "s", Request("isolated", smt="require"))
    why = (
        "asked for 4 CPUs, 0 are free: no NUMA node has more than 0 of the CPUs that vCPUs may use; "
        "4 more CPUs on node 0 would make room"
    )
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", why)]
    assert made.changes == ()


@pytest.mark.parametrize(
    ("pins", "stays"),
    [
        (["30", "9", "12"], True),
        (["9", "9", "12"], False),
        (["9", "12", "3"], False),
        (["9", "12", "13-14"], False),
    ],
)
def test_a_guest_on_free_isolated_cpus_of_one_node_stays_there(pins: list[str], stays: bool) -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 4, cpus("0-7")), guest(2, 3, cpus("0-7"), pins=pins)])
    made = plan(host, "s", Request("isolated"))
    assert vcpu_cpus(made)["g2"] == ([30, 9, 12] if stays else [12, 13, 14])
    assert vcpu_cpus(made)["g1"] == ([8, 10, 11, 13] if stays else [8, 9, 10, 11])


def test_with_smt_isolate_a_sibling_thread_is_no_cpu_for_another_vcpu() -> None:
    host = snapshot(SMT, [guest(1, 2, cpus("0-3"), pins=["4", "20"])])
    assert plan(host, "s", Request("isolated")).changes[-1].target.kind == "emulator"
    assert vcpu_cpus(plan(host, "s", Request("isolated", smt="isolate"))) == {"g1": [4, 5]}


@pytest.mark.parametrize("strategy", ["isolated", "optimal"])
def test_with_smt_isolate_a_guest_on_second_hardware_threads_stays_there(strategy: str) -> None:
    host = snapshot(SMT, [guest(1, 2, cpus("0-3"), pins=["20", "21"]), guest(2, 2, cpus("0-3"))])
    made = plan(host, "s", Request(strategy, smt="isolate"))
    assert vcpu_cpus(made) == {"g1": [20, 21], "g2": [6, 7]}
    assert made.optimality is not None
    assert made.optimality.proven


def test_cpus_to_which_other_guests_are_pinned_are_not_allocated() -> None:
    others = [guest(2, 2, cpus("0-7"), pins=["8", "9"]), guest(3, 1, cpus("0-7"), pins=["10"], dedicated=True)]
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 2, cpus("0-7")), *others])
    made = plan(host, "s", Request("isolated", guests=("g1", "g3")))
    assert vcpu_cpus(made) == {"g1": [11, 12]}
    assert [(left.label, left.why) for left in made.skipped] == [("guest g3", "Nova dedicates CPUs 10 to it")]


def test_all_vcpus_of_a_guest_are_on_the_node_of_its_memory() -> None:
    host = snapshot(
        plain(32, 2, isolated="8-15,18-31"),
        [guest(1, 4, cpus("0-7"), memory={1: GIB}), guest(2, 12, cpus("0-7"), memory={0: GIB})],
    )
    made = plan(host, "s", Request("isolated"))
    assert vcpu_cpus(made) == {"g2": list(range(18, 30)), "g1": [8, 9, 10, 11]}


def test_a_guest_too_big_for_the_isolated_cpus_is_unplaced_and_the_plan_is_not_blocked() -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 30, cpus("0-7")), guest(2, 2, cpus("0-7"))])
    made = plan(host, "s", Request("isolated"))
    assert made.blocked == ""
    assert vcpu_cpus(made) == {"g2": [8, 9]}
    assert [left.why for left in made.unplaced] == [
        "asked for 30 CPUs, 24 are free: no NUMA node has more than 24 of the CPUs that vCPUs may use; "
        "6 more CPUs on node 0 would make room"
    ]


def test_a_guest_too_wide_for_the_isolated_cpus_does_not_keep_the_others_from_their_places() -> None:
    top = plain(32, isolated="24-31")
    host = snapshot(
        top,
        [guest(1, 10, cpus("0-23")), guest(2, 4, cpus("0-23")), guest(3, 2, cpus("0-23"))],
        [process(300, 50.0, "0-23")],
    )
    made = plan(host, "s", Request("isolated"))
    assert made.blocked == ""
    assert vcpu_cpus(made) == {"g2": [24, 25, 26, 27], "g3": [28, 29]}
    assert "process daemon (300)" in [str(want.target) for want in made.wanted]
    assert [(left.label, left.why) for left in made.unplaced] == [
        (
            "guest g1",
            "asked for 10 CPUs, 8 are free: no NUMA node has more than 8 of the CPUs that vCPUs may use; "
            "2 more CPUs on node 0 would make room; this boot isolates 8 of the 24 CPUs wanted (8-31)",
        )
    ]
    assert made.isolation is not None
    assert (str(made.isolation.wanted), str(made.isolation.present)) == ("8-31", "24-31")
    assert plan(applied(host, made), "s", Request("isolated")).changes == ()


def test_without_a_guest_that_fits_the_isolated_cpus_each_one_is_named_with_its_numbers() -> None:
    host = snapshot(plain(32, isolated="30-31"), [guest(1, 30, cpus("0-7")), guest(2, 4, cpus("0-7"))])
    made = plan(host, "s", Request("isolated"))
    assert made.blocked == ""
    assert [left.why for left in made.unplaced] == [
        "asked for 30 CPUs, 2 are free: no NUMA node has more than 2 of the CPUs that vCPUs may use; "
        "28 more CPUs on node 0 would make room",
        "asked for 4 CPUs, 2 are free: no NUMA node has more than 2 of the CPUs that vCPUs may use; "
        "2 more CPUs on node 0 would make room; this boot isolates 2 of the 24 CPUs wanted (8-31)",
    ]
    assert not vcpu_cpus(made)


def test_a_boot_without_isolated_cpus_blocks_the_plan_and_a_guest_that_would_never_fit_is_named() -> None:
    host = snapshot(plain(32), [guest(1, 30, cpus("0-7")), guest(2, 4, cpus("0-7"))])
    made = plan(host, "s", Request("isolated"))
    assert made.blocked.startswith("CPUs 8-31 are not isolated: reboot with isolcpus=managed_irq,domain,8-31 ")
    assert [left.why for left in made.unplaced] == [
        "asked for 30 CPUs, 24 are free: no NUMA node has more than 24 of the CPUs that vCPUs may use; "
        "6 more CPUs on node 0 would make room",
        "its 4 vCPUs need isolated CPUs on one node; this boot isolates 0 of the 24 CPUs wanted (8-31)",
    ]
    assert not vcpu_cpus(made)


def test_fewer_isolated_cpus_are_enough_where_all_guests_fit() -> None:
    made = plan(snapshot(plain(32, isolated="30-31"), [guest(1, 2, cpus("0-7"))]), "s", Request("isolated"))
    assert (made.blocked, vcpu_cpus(made)) == ("", {"g1": [30, 31]})
    assert made.isolation is not None
    assert (str(made.isolation.wanted), str(made.isolation.present)) == ("30-31", "30-31")
    assert made.isolation.partition == ()


@pytest.mark.parametrize(
    ("line", "nohz_full", "warned"),
    [
        ("isolcpus=8-31", "", ["keep their timer tick", "run RCU callbacks"]),
        ("isolcpus=8-31 rcu_nocbs=8-31", "", ["keep their timer tick"]),
        ("isolcpus=8-31 rcu_nocbs=all", "", ["keep their timer tick"]),
        ("isolcpus=8-31 nohz_full=8-31", "8-31", []),
    ],
)
def test_isolcpus_without_nohz_full_or_rcu_nocbs_gives_warnings(line: str, nohz_full: str, warned: list[str]) -> None:
    top = plain(32, isolated="8-31", nohz_full=nohz_full, kernel=replace(KERNEL, command_line=line))
    warnings = plan(snapshot(top, [guest(1, 2, cpus("0-7"))]), "s", Request("isolated")).warnings
    assert len(warnings) == len(warned)
    assert all(words in warning for words, warning in zip(warned, warnings, strict=True))


def test_the_plan_has_the_commands_of_the_live_form_where_the_kernel_has_partitions() -> None:
    made = plan(snapshot(plain(32), [guest(1, 2, cpus("0-31"))]), "s", Request("isolated"))
    assert made.isolation is not None
    assert "echo 8-31 > /sys/fs/cgroup/pinner.partition/cpuset.cpus" in made.isolation.partition
    assert "echo isolated > /sys/fs/cgroup/pinner.partition/cpuset.cpus.partition" in made.isolation.partition
    assert "or make the live cgroup partition" in made.blocked


@pytest.mark.parametrize(("cgroup", "why"), [("v1", "mounted as cgroup v1"), ("v2", "older"), ("none", "not mounted")])
def test_the_plan_says_why_the_kernel_has_no_partitions(cgroup: str, why: str) -> None:
    top = topology({0: [[c] for c in range(8)]}, kernel=replace(KERNEL, cgroup=cgroup, partitions=False))
    made = plan(snapshot(top, [guest(1, 1, top.online)]), "s", Request("isolated"))
    assert made.isolation is not None
    assert made.isolation.partition == ()
    assert why in made.isolation.partition_note
    assert "live" not in made.blocked


@pytest.mark.parametrize("strategy", ["isolated", "optimal"])
@pytest.mark.parametrize("host", [wide.ALONE, wide.BOTH])
def test_a_guest_wider_than_a_node_has_the_nodes_of_its_memory(strategy: str, host: Snapshot) -> None:
    made = plan(host, "s", Request(strategy))
    assert set(vcpu_cpus(made)[wide.WIDE.name]) == set(cpus(wide.NEAR_ITS_MEMORY))
    assert {term.name: term.after for term in made.objective.terms}["remote_memory"] == pytest.approx(wide.REMOTE)
    assert plan(applied(host, made), "s", Request(strategy)).changes == ()


def test_no_node_has_room_for_a_guest_that_is_wider() -> None:
    host = snapshot(wide.TOP, [replace(wide.WIDE, memory_per_node={})])
    reasons = {want.reason for want in plan(host, "s", Request("isolated")).wanted if want.target.kind == "vcpu"}
    assert reasons == {
        "an isolated CPU of its own; node 0 has room for part of the guest; node 1 has room for part of the guest"
    }


NINE_TO_ELEVEN = guest(1, 3, cpus("0-15"), pins=["9", "10", "11"], restriction=cpus("9-11"))
"""No CPU of its definition is balanced: it stays where it is."""


@pytest.mark.parametrize("strategy", ["isolated", "shared-pool"])
@pytest.mark.parametrize(("vcpus", "expected"), [(2, [8, 12]), (5, [8, 12, 13, 14, 15])])
def test_the_isolated_cpus_of_a_guest_without_a_place_stay_its_own(
    strategy: str, vcpus: int, expected: list[int]
) -> None:
    nova = NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "isolated"})
    guests = [NINE_TO_ELEVEN, guest(5, vcpus, cpus("0-7"), nova=nova)]
    made = plan(snapshot(plain(16, isolated="8-15"), guests, [process(300, 40.0, "0-7")]), "s", Request(strategy))
    assert [left.target.name for left in made.unplaced] == ["g1"]
    assert (vcpu_cpus(made), made.worse) == ({"g5": expected}, "")


def test_one_guest_wider_than_a_node_does_not_take_the_cpus_of_three_small_ones() -> None:
    sizes = {1: (6, 1), 2: (1, 3), 3: (6, 3), 4: (1, 3), 6: (1, 2)}
    found = [guest(n, size, cpus("0-11"), memory={node: 2 * GIB}) for n, (size, node) in sizes.items()]
    host = snapshot(plain(12, 4, isolated="2,5,7-8,10-11"), found, [process(300, 5.0, "0-1,3-4,6,9")])
    made = plan(host, "s", Request("isolated"))
    assert [left.target.name for left in made.unplaced] == ["g1", "g3"]
