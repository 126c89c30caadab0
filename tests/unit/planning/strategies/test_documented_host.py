"""The three strategies on the documented host, CPU for CPU."""

import pytest
from support.hosts import GIB, applied, cpus, guest, interleaved, plain, process, snapshot

from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.planning.planner import plan

ARGUMENTS = "isolcpus=managed_irq,domain,8-31 nohz_full=8-31 rcu_nocbs=8-31"
LITERAL = {"housekeeping": "0-3", "emulator": "4-7"}


def host(nodes: int = 1, vcpus: int = 16, isolated: str = ""):
    top = plain(32, nodes, isolated=isolated, nohz_full=isolated)
    floor = top.online - top.isolated
    guests = [
        guest(1, vcpus, floor, iothreads=1, vhost_threads=1, memory={0: 2 * GIB}),
        guest(2, vcpus, floor, iothreads=1, vhost_threads=1, memory={nodes - 1: 2 * GIB}),
    ]
    return snapshot(top, guests, [process(300, 40.0, str(floor), str(floor)), process(400, 1.9, str(floor))])


def table(made: Plan) -> dict[str, str]:
    """Target to CPUs, each as text; targets that share a kind and a guest in one line where they share CPUs."""
    return {str(want.target): str(want.cpus) for want in made.wanted}


def everything(vcpus: int, one: str, two: str, emulator: tuple[str, str] = ("4-7", "4-7"), house: str = "0-3"):
    expected = {"process daemon (300)": house}
    for name, own, beside in (("g1", one, emulator[0]), ("g2", two, emulator[1])):
        number = int(name[1])
        expected |= {f"guest {name} emulator": beside, f"guest {name} iothread 1": beside}
        expected |= {f"guest {name} vhost {10_600 + 1_000 * number}": beside}
        expected |= {f"guest {name} vcpu {v}": own for v in range(vcpus)}
    return expected


@pytest.mark.parametrize("sets", [LITERAL, {}], ids=["literal", "auto"])
def test_shared_pool_places_the_documented_sets(sets: dict[str, str]) -> None:
    made = plan(host(), "s", Request("shared-pool", **sets))
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == ("0-3", "4-7", "8-31")
    assert table(made) == everything(16, "8-31", "8-31")
    assert made.unplaced == made.skipped == ()
    # 32 vCPUs share 24 CPUs now: housekeeping and the emulators got the others.
    assert made.warnings == (
        "the plan makes the objective worse, tier 6 6.47 -> 8.00, most of it by overcommit 0.00 -> 8.00 CPUs; it may "
        "be applied, because vCPUs give up CPUs that are not for them",
    )
    assert made.worse == ""


def test_numa_local_places_the_documented_sets() -> None:
    made = plan(host(nodes=2, vcpus=8), "s", Request("numa-local", **LITERAL))
    assert table(made) == everything(8, "8-15", "16-31")
    assert made.unplaced == ()


def test_numa_local_auto_takes_a_slice_of_each_node() -> None:
    made = plan(host(nodes=2, vcpus=8), "s", Request("numa-local"))
    assert table(made) == everything(8, "4-15", "20-31", emulator=("2-3", "18-19"), house="0-1,16-17")


def test_numa_local_gives_the_numbers_of_a_guest_that_fits_no_node() -> None:
    made = plan(host(nodes=2, vcpus=17), "s", Request("numa-local", **LITERAL))
    why = "asked for 17 CPUs, 16 are free: no NUMA node has more than 16 of the CPUs that vCPUs may use"
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", why), ("guest g2", why)]
    assert table(made) == {"process daemon (300)": "0-3"}


@pytest.mark.parametrize("sets", [LITERAL, {}], ids=["literal", "auto"])
def test_isolated_places_each_vcpu_where_the_boot_isolates_enough_cpus(sets: dict[str, str]) -> None:
    made = plan(host(vcpus=12, isolated="8-31"), "s", Request("isolated", **sets))
    expected = everything(12, "", "")
    expected |= {f"guest g1 vcpu {v}": str(8 + v) for v in range(12)}
    expected |= {f"guest g2 vcpu {v}": str(20 + v) for v in range(12)}
    assert table(made) == expected
    assert (made.blocked, made.unplaced, made.warnings) == ("", (), ())
    assert made.isolation is not None
    assert (made.isolation.wanted, made.isolation.present) == (cpus("8-31"), cpus("8-31"))
    assert made.isolation.kernel_arguments == ARGUMENTS


@pytest.mark.parametrize("sets", [LITERAL, {}], ids=["literal", "auto"])
def test_isolated_moves_no_guest_on_a_boot_without_isolation_and_gives_the_arguments(sets: dict[str, str]) -> None:
    made = plan(host(), "s", Request("isolated", **sets))
    assert made.isolation is not None
    assert (made.isolation.wanted, made.isolation.present) == (cpus("8-31"), cpus(""))
    assert made.isolation.kernel_arguments == ARGUMENTS
    assert made.isolation.grub_line == f'GRUB_CMDLINE_LINUX="quiet {ARGUMENTS}"'
    assert ARGUMENTS in made.blocked
    assert [left.label for left in made.unplaced] == ["guest g1", "guest g2"]
    assert {change.target.kind for change in made.changes} == {"process"}


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_second_plan_is_empty(strategy: str, by_hand: bool) -> None:
    before = host(nodes=2, vcpus=8, isolated="8-31" if strategy == "isolated" else "")
    request = Request(strategy, **LITERAL)
    made = plan(before, "s", request)
    assert made.changes
    assert plan(applied(before, made, by_hand=by_hand), "s", request).changes == ()


def test_auto_takes_whole_cores_of_both_nodes_of_an_interleaved_host() -> None:
    made = plan(snapshot(interleaved(32)), "s", Request())
    assert str(made.roles.housekeeping) == "0-3,32-35"
    assert str(made.roles.emulator) == "4-7,36-39"
