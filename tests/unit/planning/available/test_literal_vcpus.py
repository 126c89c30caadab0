"""A literal set for vCPUs: they float over it, and automatic sets take other CPUs."""

import pytest
from support.hosts import GIB, applied, cpus, guest, plain, process, snapshot

from pinner.model.errors import Invalid, NovaConflict
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan


def host(nodes: int = 1, vcpus: int = 4, isolated: str = "", offline: str = "", **more: object) -> Snapshot:
    top = plain(32, nodes, isolated=isolated, offline=offline)
    floor = top.online - top.isolated
    guests = [guest(number, vcpus, floor, memory={number % nodes: 2 * GIB}) for number in (1, 2)]
    return snapshot(top, guests, [process(300, 40.0, str(floor))], **more)


def sets(made: Plan) -> tuple[str, str, str]:
    return str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)


def masks(made: Plan) -> set[str]:
    return {str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"}


@pytest.mark.parametrize("emulator", ["auto", "4-7"])
def test_vcpus_float_over_the_set_and_the_others_are_elsewhere(emulator: str) -> None:
    made = plan(host(), "s", Request(vcpus="8-23", emulator=emulator))
    assert sets(made) == ("0-3", "4-7", "8-23")
    assert masks(made) == {"8-23"}
    assert made.roles.notes == ()


def test_automatic_sets_leave_the_lowest_cpus_to_vcpus() -> None:
    made = plan(host(), "s", Request(vcpus="0-15"))
    assert sets(made) == ("16-19", "20-23", "0-15")
    assert plan(applied(host(), made), "s", made.request).changes == ()
    assert plan(applied(host(), made, by_hand=True), "s", made.request).changes == ()


def test_numa_local_places_a_guest_on_the_part_of_a_node() -> None:
    made = plan(host(nodes=2), "s", Request("numa-local", vcpus="8-15,24-27"))
    assert masks(made) == {"8-15", "24-27"}
    assert sets(made)[2] == "8-15,24-27"


def test_a_set_that_crowds_vcpus_makes_the_objective_worse() -> None:
    made = plan(host(), "s", Request(vcpus="8-9"))
    assert "overcommit 0.00 -> 6.00 CPUs" in made.worse
    assert made.worse.endswith("plan with --vcpus auto")


@pytest.mark.parametrize("strategy", ["isolated", "optimal"])
def test_vcpus_with_isolated_cpus_have_no_such_set(strategy: str) -> None:
    made = plan(host(isolated="16-30"), "s", Request(strategy, vcpus="8-15"))
    assert f"vcpus '8-15' has no effect: the strategy {strategy} does not use it" in made.warnings
    assert made.roles.vcpu == cpus("16-30")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(vcpus="8-40"), "vcpus: '8-40' is not valid: CPUs that pinner may allocate; 32-40 are absent"),
        (Request(vcpus="30-31"), "31 is offline"),
        (Request(vcpus="8-23", emulator="20-24"), "CPUs outside emulator; CPUs 20-23 are in both sets"),
        (Request(vcpus="8-23", housekeeping="8"), "CPUs outside housekeeping; CPUs 8 are in both sets"),
    ],
)
def test_a_wrong_set_is_refused(request_: Request, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        plan(host(offline="31"), "s", request_)
    assert expected in str(caught.value)
    assert caught.value.details["field"] == "vcpus"


def test_isolated_cpus_and_cpus_of_nova_are_no_part_of_it() -> None:
    with pytest.raises(Invalid, match="16-17 are isolated from the kernel's scheduler"):
        plan(host(isolated="16-17"), "s", Request(vcpus="8-17"))
    with pytest.raises(NovaConflict):
        plan(host(dedicated=cpus("20")), "s", Request(vcpus="8-20"))
    with pytest.raises(Invalid, match="they leave out 8-9"):
        plan(host(shared=cpus("10-20")), "s", Request(vcpus="8-12"))


@pytest.mark.parametrize("vcpus", ["", "x", "9-8"])
def test_no_list(vcpus: str) -> None:
    with pytest.raises(Invalid, match="vcpus"):
        Request(vcpus=vcpus)
