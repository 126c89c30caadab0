"""The live form of isolated searches for room beside what it has placed itself."""

from dataclasses import replace

import pytest
from support.hosts import GIB, KERNEL, cpus, guest, interleaved, process, snapshot
from support.values import MEMBER

from pinner.model.guest.guest import Cgroup, OperatorPin
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan


def _two_nodes() -> Snapshot:
    masks = {6: "3,5-7,9,11-15,17,23"}
    found = {1: (3, 1), 2: (3, 0), 3: (1, 1), 5: (2, 0), 6: (3, 0), 7: (3, 0), 8: (4, 1)}
    guests = [
        guest(
            number,
            size,
            cpus(masks.get(number, "0-23")),
            memory={node: 2 * GIB},
            cgroups=_cgroups(number),
            restriction=cpus(masks.get(number, "")),
            excluded=number in (2, 5),
        )
        for number, (size, node) in found.items()
    ]
    return snapshot(interleaved(12, 2, kernel=replace(KERNEL, unbound=cpus("0-23"))), guests)


def _one_node() -> Snapshot:
    mask = cpus("0,3-4,11-13,16-19,22,27,31-32,34-38,41-43,45-46")
    pins = ["6", "13", "1", "34", "27", "27", "26", "32"]
    operators = tuple(OperatorPin("vcpu", vcpu, cpus(pin), "live") for vcpu, pin in enumerate(pins))
    sizes = {1: 1, 4: 8, 5: 8, 6: 1}
    guests = [guest(number, size, cpus("0-47"), cgroups=_cgroups(number)) for number, size in sizes.items()]
    guests += [
        guest(2, 2, mask, restriction=mask, cgroups=_cgroups(2)),
        guest(3, 8, cpus("0-47"), pins=pins, operator_pins=operators, cgroups=_cgroups(3)),
    ]
    daemons = [process(300 + number, load, "0-47") for number, load in enumerate((50.0, 5.0, 50.0))]
    return snapshot(interleaved(24, 1, kernel=replace(KERNEL, unbound=cpus("0-47"))), guests, daemons)


def _cgroups(number: int) -> tuple[Cgroup, ...]:
    return Cgroup("machine.slice", MEMBER), Cgroup(f"machine.slice/g{number}.scope", MEMBER)


@pytest.mark.parametrize(("host", "smt", "left"), [(_two_nodes(), "require", []), (_one_node(), "isolate", ["g5"])])
def test_a_guest_gets_the_room_that_is_left_once_the_emulators_have_theirs(
    host: Snapshot, smt: str, left: list[str]
) -> None:
    made = plan(host, "s", Request("isolated", isolation="live", smt=smt))
    assert [each.target.name for each in made.unplaced] == left
