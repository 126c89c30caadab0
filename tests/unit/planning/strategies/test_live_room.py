"""The live form of isolated searches for room beside what it has placed itself."""

from dataclasses import replace

import pytest
from support.hosts import GIB, KERNEL, applied, cpus, guest, interleaved, plain, process, snapshot
from support.values import MEMBER

from pinner.model.change import StateChange
from pinner.model.cpuset import union
from pinner.model.guest.guest import Cgroup, OperatorPin
from pinner.model.plan.plan import Plan
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


def _cgroups(number: int, slice_: str = "machine.slice") -> tuple[Cgroup, ...]:
    return Cgroup(slice_, MEMBER), Cgroup(f"{slice_}/g{number}.scope", MEMBER)


@pytest.mark.parametrize(("host", "smt", "left"), [(_two_nodes(), "require", []), (_one_node(), "isolate", ["g5"])])
def test_a_guest_gets_the_room_that_is_left_once_the_emulators_have_theirs(
    host: Snapshot, smt: str, left: list[str]
) -> None:
    made = plan(host, "s", Request("isolated", isolation="live", smt=smt))
    assert [each.target.name for each in made.unplaced] == left


def _with_partitions(host: Snapshot, made: Plan) -> Snapshot:
    states = {change.target.owner: change.after for change in made.changes if isinstance(change, StateChange)}
    isolated = union(state.cpus for state in states.values() if getattr(state, "kind", "") == "isolated")
    after, kernel = applied(host, made), replace(host.topology.kernel, unbound=states[""])
    guests = tuple(
        replace(each, cgroups=tuple(replace(at, state=states.get(at.path, at.state)) for at in each.cgroups))
        for each in after.guests
    )
    cores = tuple(replace(cpu, isolated=cpu.id in isolated) for cpu in after.topology.cpus)
    return replace(after, guests=guests, topology=replace(after.topology, kernel=kernel, cpus=cores))


def test_a_guest_keeps_its_partition_where_the_emulator_set_was_made_small_for_it() -> None:
    sizes = {1: 1, 2: 6, 3: 3, 4: 2, 6: 1}
    guests = [guest(number, size, cpus("0-31"), cgroups=_cgroups(number)) for number, size in sizes.items()]
    own = (OperatorPin("vcpu", 0, cpus("15"), "live"),)
    guests.append(guest(5, 1, cpus("0-31"), pins=["15"], operator_pins=own, cgroups=_cgroups(5)))
    guests.append(guest(7, 3, cpus("0-31"), cgroups=_cgroups(7, "other.slice")))
    host = snapshot(interleaved(16, 1, kernel=replace(KERNEL, unbound=cpus("0-31"))), guests)
    request = Request("isolated", isolation="live", smt="isolate")
    first = plan(host, "s", request)
    second = plan(_with_partitions(host, first), "s", request)
    assert [str(change.target) for change in second.changes] == []
    assert {left.target for left in second.unplaced} == {left.target for left in first.unplaced}


def test_the_guest_that_would_take_the_last_cpus_leaves_them_to_others() -> None:
    mask = cpus("0-1,3,6-7,9")
    sizes = {1: 8, 2: 8, 3: 6, 4: 1, 5: 1, 7: 6, 8: 6}
    guests = [guest(number, size, cpus("0-11"), cgroups=_cgroups(number)) for number, size in sizes.items()]
    guests.append(guest(6, 6, mask, restriction=mask, cgroups=_cgroups(6)))
    daemons = [process(300 + number, load, "0-11") for number, load in enumerate((5.0, 5.0, 5.0, 200.0))]
    host = snapshot(plain(12, 1, kernel=replace(KERNEL, unbound=cpus("0-11"))), guests, daemons)
    made = plan(host, "s", Request("isolated", isolation="live"))
    assert [left.target.name for left in made.unplaced if left.target.name in ("g4", "g5")] == []


def test_no_guest_moves_for_one_that_gets_no_partition() -> None:
    found = {1: (1, 0), 2: (2, 0), 3: (8, 1), 4: (6, 0), 5: (2, 0), 6: (1, 1), 7: (8, 0), 8: (8, 1)}
    guests = [
        guest(number, size, cpus("0-7"), memory={node: 2 * GIB}, cgroups=_cgroups(number))
        for number, (size, node) in found.items()
    ]
    daemons = [process(300 + number, load, "0-7") for number, load in enumerate((200.0, 50.0, 200.0, 200.0))]
    host = snapshot(plain(8, 2, kernel=replace(KERNEL, unbound=cpus("0-7"))), guests, daemons)
    request = Request("isolated", isolation="live", smt="isolate")
    second = plan(_with_partitions(host, plan(host, "s", request)), "s", request)
    assert [str(change.target) for change in second.changes] == []


def test_the_emulator_cpu_of_a_confined_guest_is_no_evidence_of_another_size() -> None:
    """The bound of g2 leaves it CPU 10 of two emulator sets: 9-10,21-22, and 10,22 beside two steps of housekeeping."""
    top = interleaved(12, 2, kernel=replace(KERNEL, unbound=cpus("0-23")))
    bound = cpus("1,7-11,13-15,18,20,23")
    pins = tuple(OperatorPin("vcpu", vcpu, cpus(cpu), "live") for vcpu, cpu in enumerate(("6", "18")))
    kept = cpus("3-8,11-12,17,19-20,23")
    guests = [
        guest(2, 1, bound, restriction=bound, memory={0: GIB}, cgroups=_cgroups(2)),
        guest(5, 6, top.online, memory={0: GIB}, cgroups=_cgroups(5)),
        guest(6, 2, top.online, pins=("6", "18"), operator_pins=pins, cgroups=_cgroups(6)),
        guest(7, 6, kept, restriction=kept, excluded=True, cgroups=_cgroups(7)),
        *(guest(number, 3, top.online, cgroups=_cgroups(number)) for number in (1, 3, 4)),
    ]
    busy = snapshot(top, guests, [process(300, 200.0, "0-23"), process(310, 50.0, "0-23")])
    request = Request("isolated", isolation="live", smt="isolate")
    made = plan(busy, "s", request)
    again = plan(_with_partitions(busy, made), "s", request)
    assert (again.roles, again.changes) == (made.roles, ())
