"""Isolation: who gets which CPU, and what the kernel has to be told."""

from dataclasses import replace

import pytest
from support.hosts import GIB, KERNEL, applied, cpus, guest, interleaved, plain, snapshot, topology

from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.planning.isolation import grub_line
from pinner.planning.planner import plan

ARGUMENTS = "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3"


def seats(made: Plan) -> dict[str, list[int]]:
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
def test_smt(smt: str, expected: dict[str, list[int]]) -> None:
    host = snapshot(SMT, [guest(1, 4, cpus("0-3")), guest(2, 3, cpus("0-3")), guest(3, 1, cpus("0-3"))])
    made = plan(host, "s", Request("isolated", smt=smt))
    assert seats(made) == expected
    assert plan(applied(host, made), "s", Request("isolated", smt=smt)).changes == ()


def test_smt_require_without_hardware_threads_places_nobody() -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 4, cpus("0-7"))])
    made = plan(host, "s", Request("isolated", smt="require"))
    why = "asked for 4 CPUs, 0 are free: no NUMA node has more than 0 of the CPUs that vCPUs may use"
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", why)]
    assert made.changes == ()


@pytest.mark.parametrize(
    ("pins", "kept"),
    [
        (["30", "9", "12"], True),
        (["9", "9", "12"], False),
        (["9", "12", "3"], False),
        (["9", "12", "13-14"], False),
    ],
)
def test_a_guest_keeps_cpus_that_are_right_already(pins: list[str], kept: bool) -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 4, cpus("0-7")), guest(2, 3, cpus("0-7"), pins=pins)])
    made = plan(host, "s", Request("isolated"))
    assert seats(made)["g2"] == ([30, 9, 12] if kept else [12, 13, 14])
    assert seats(made)["g1"] == ([8, 10, 11, 13] if kept else [8, 9, 10, 11])


def test_siblings_are_no_seats_of_their_own_with_isolate() -> None:
    host = snapshot(SMT, [guest(1, 2, cpus("0-3"), pins=["4", "20"])])
    assert plan(host, "s", Request("isolated")).changes[-1].target.kind == "emulator"
    assert seats(plan(host, "s", Request("isolated", smt="isolate"))) == {"g1": [4, 5]}


def test_guests_that_are_not_placed_keep_their_cpus_to_themselves() -> None:
    others = [guest(2, 2, cpus("0-7"), pins=["8", "9"]), guest(3, 1, cpus("0-7"), pins=["10"], dedicated=True)]
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 2, cpus("0-7")), *others])
    made = plan(host, "s", Request("isolated", guests=("g1", "g3")))
    assert seats(made) == {"g1": [11, 12]}
    assert [(left.label, left.why) for left in made.skipped] == [("guest g3", "Nova dedicates CPUs 10 to it")]


def test_all_of_a_guest_is_on_the_node_of_its_memory() -> None:
    host = snapshot(
        plain(32, 2, isolated="8-15,18-31"),
        [guest(1, 4, cpus("0-7"), memory={1: GIB}), guest(2, 12, cpus("0-7"), memory={0: GIB})],
    )
    made = plan(host, "s", Request("isolated"))
    assert seats(made) == {"g2": list(range(18, 30)), "g1": [8, 9, 10, 11]}


def test_a_guest_too_big_for_the_isolated_cpus_is_unplaced_and_the_boot_is_not_to_blame() -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 30, cpus("0-7")), guest(2, 2, cpus("0-7"))])
    made = plan(host, "s", Request("isolated"))
    assert made.blocked == ""
    assert seats(made) == {"g2": [8, 9]}
    assert [left.why for left in made.unplaced] == [
        "asked for 30 CPUs, 24 are free: no NUMA node has more than 24 of the CPUs that vCPUs may use"
    ]


def test_too_little_isolated_for_the_guests_is_blocked_and_tells_who_would_not_fit_then() -> None:
    host = snapshot(plain(32, isolated="30-31"), [guest(1, 30, cpus("0-7")), guest(2, 4, cpus("0-7"))])
    made = plan(host, "s", Request("isolated"))
    assert made.blocked.startswith("CPUs 8-29 are not isolated: reboot with isolcpus=managed_irq,domain,8-31 ")
    assert [left.why for left in made.unplaced] == [
        "asked for 30 CPUs, 24 are free: no NUMA node has more than 24 of the CPUs that vCPUs may use",
        "its 4 vCPUs need isolated CPUs of one node; this boot isolates 2 of the 24 wanted (8-31)",
    ]
    assert not seats(made)


def test_fewer_isolated_cpus_than_could_be_are_enough_where_all_guests_fit() -> None:
    made = plan(snapshot(plain(32, isolated="30-31"), [guest(1, 2, cpus("0-7"))]), "s", Request("isolated"))
    assert (made.blocked, seats(made)) == ("", {"g1": [30, 31]})
    assert made.isolation is not None
    assert (str(made.isolation.wanted), str(made.isolation.present)) == ("30-31", "30-31")
    assert made.isolation.partition == ()


@pytest.mark.parametrize(
    ("line", "nohz_full", "warned"),
    [
        ("isolcpus=8-31", "", ["keep their tick", "run RCU callbacks"]),
        ("isolcpus=8-31 rcu_nocbs=8-31", "", ["keep their tick"]),
        ("isolcpus=8-31 rcu_nocbs=all", "", ["keep their tick"]),
        ("isolcpus=8-31 nohz_full=8-31", "8-31", []),
    ],
)
def test_isolcpus_without_its_companions_is_warned_of(line: str, nohz_full: str, warned: list[str]) -> None:
    top = plain(32, isolated="8-31", nohz_full=nohz_full, kernel=replace(KERNEL, command_line=line))
    warnings = plan(snapshot(top, [guest(1, 2, cpus("0-7"))]), "s", Request("isolated")).warnings
    assert len(warnings) == len(warned)
    assert all(words in warning for words, warning in zip(warned, warnings, strict=True))


@pytest.mark.parametrize(
    ("today", "kept"),
    [
        ("", ""),
        ("BOOT_IMAGE=/boot/vmlinuz-6.1 root=UUID=1-2 ro initrd=\\initrd quiet", "quiet "),
        ("intel_iommu=on isolcpus=5 nohz_full=5 rcu-nocbs=5 mitigations=off", "intel_iommu=on mitigations=off "),
        ("rw rootflags=subvol=@ console=ttyS0,115200n8", "rw rootflags=subvol=@ console=ttyS0,115200n8 "),
        ('dyndbg="file a.c +p" price=$5`x`', r"dyndbg=\"file a.c +p\" price=\$5\`x\` "),
    ],
)
def test_the_grub_line_keeps_todays_arguments(today: str, kept: str) -> None:
    assert grub_line(today, cpus("2-3")) == f'GRUB_CMDLINE_LINUX="{kept}{ARGUMENTS}"'


def test_what_is_meant_for_init_stays_last() -> None:
    assert grub_line("quiet -- single root=no", cpus("2-3")) == (
        f'GRUB_CMDLINE_LINUX="quiet {ARGUMENTS} -- single root=no"'
    )


def test_the_live_form_where_the_kernel_has_it() -> None:
    made = plan(snapshot(plain(32), [guest(1, 2, cpus("0-31"))]), "s", Request("isolated"))
    assert made.isolation is not None
    assert "echo 8-31 > /sys/fs/cgroup/pinner.partition/cpuset.cpus" in made.isolation.partition
    assert "echo isolated > /sys/fs/cgroup/pinner.partition/cpuset.cpus.partition" in made.isolation.partition
    assert "or make the live cgroup partition" in made.blocked


@pytest.mark.parametrize(("cgroup", "why"), [("v1", "mounted as cgroup v1"), ("v2", "older"), ("none", "not mounted")])
def test_the_live_form_where_the_kernel_lacks_it(cgroup: str, why: str) -> None:
    top = topology({0: [[c] for c in range(8)]}, kernel=replace(KERNEL, cgroup=cgroup, partitions=False))
    made = plan(snapshot(top), "s", Request("isolated"))
    assert made.isolation is not None
    assert made.isolation.partition == ()
    assert why in made.isolation.partition_note
    assert "live" not in made.blocked
