"""The strategies on the documented hosts, CPU for CPU, and what each stage of the case is by hand."""

from dataclasses import replace

import pytest
from data.field.documented import EVEN, FIFTH, FOURTH, PIDS, documented_host, pin
from data.field.documented import host_of_32 as host
from support.hosts import applied, cpus, interleaved, snapshot

from pinner.model.errors import Invalid
from pinner.model.guest.guest import OperatorPin
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request, RequestedPin
from pinner.planning.planner import plan

ARGUMENTS = "isolcpus=managed_irq,domain,8-31 nohz_full=8-31 rcu_nocbs=8-31"
LITERAL = {"housekeeping": "0-3", "emulator": "4-7"}


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


def test_stage_3_sets_the_daemons_apart() -> None:
    here, apart = documented_host(), tuple(pin(str(pid), "process", "0,2,4,6") for pid in PIDS)
    assert {str(change.after) for change in plan(here, "s", Request(placement=apart)).changes} == {"0,2,4,6"}
    made = plan(here, "s", Request(housekeeping="0,2,4,6"))
    assert {str(want.cpus) for want in made.wanted if want.target.kind == "process"} == {"0,2,4,6"}


@pytest.mark.parametrize(
    ("pins", "name", "owned"),
    [(FOURTH, "g1", "5-7"), (FIFTH, "g2", EVEN)],
    ids=["stage 4", "stage 5"],
)
def test_a_plan_leaves_alone_what_a_stage_pinned_by_virsh(
    pins: tuple[RequestedPin, ...], name: str, owned: str
) -> None:
    here = documented_host()
    made = plan(here, "s", Request(placement=pins))
    by_virsh = tuple(
        OperatorPin(change.target.kind, change.target.part, change.after, "live")
        for change in made.changes
        if change.target.kind in ("vcpu", "emulator")
    )
    here = applied(here, made, by_hand=True)
    guests = (replace(each, operator_pins=by_virsh) if each.name == name else each for each in here.guests)
    after = plan(replace(here, guests=tuple(guests)), "s", Request())
    (why,) = (left.why for left in after.skipped if left.target.name == name)
    assert why.startswith("an operator pinned it through libvirt while it runs: emulator to ")
    assert f"it owns CPUs {owned}" in why
    assert not after.roles.cpus & cpus(owned)


@pytest.mark.parametrize(
    ("strategy", "vcpus"),
    [("shared-pool", ("8-31", "8-31")), ("numa-local", ("8-15", "16-31"))],
    ids=["scheme 1", "scheme 2"],
)
def test_a_scheme_by_hand_is_the_plan_of_its_strategy(strategy: str, vcpus: tuple[str, str]) -> None:
    here, pins = host(nodes=2, vcpus=8), [pin("300", "process", "0-3")]
    for name, mask in zip(("g1", "g2"), vcpus, strict=True):
        pins += [pin(name, "emulator", "4-7"), pin(name, "iothread", "4-7", 1)]
        pins += (pin(name, "vcpu", mask, vcpu) for vcpu in range(8))
    assert table(plan(here, "s", Request(placement=tuple(pins)))) == table(
        plan(here, "s", Request(strategy, **LITERAL))
    )


def test_scheme_3_leaves_the_emulators_no_isolated_cpu() -> None:
    """The case had isolcpus=5-31 and emulators on 4-7."""
    here = host(nodes=2, vcpus=8, isolated="5-31")
    for request in (Request("isolated", **LITERAL), Request(placement=(pin("g1", "emulator", "4-7"),))):
        with pytest.raises(Invalid, match="5-7 are isolated from the kernel's scheduler"):
            plan(here, "s", request)
    expected = everything(8, "", "", emulator=("4", "4"))
    expected |= {f"guest g1 vcpu {v}": str(5 + v) for v in range(8)}
    expected |= {f"guest g2 vcpu {v}": str(16 + v) for v in range(8)}
    assert table(plan(here, "s", Request("isolated", housekeeping="0-3"))) == expected
    assert table(plan(here, "s", Request(placement=_one_to_one()))) == {
        name: cpu for name, cpu in expected.items() if "vcpu" in name
    }


def _one_to_one():
    first = {"g1": 5, "g2": 16}
    return tuple(pin(name, "vcpu", str(cpu + vcpu), vcpu) for name, cpu in first.items() for vcpu in range(8))
