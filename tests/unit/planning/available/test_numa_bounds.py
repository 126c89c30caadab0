"""Guests that strict memory, huge pages or Nova's cells bind to NUMA nodes stay on these nodes, in every plan."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.hosts import GIB, applied, cpus, guest, masked, plain, process, snapshot
from support.machines import NAMES, root_of
from support.values import recorded

from pinner.host.hardware.sysfs import read_topology
from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Refused
from pinner.model.guest.guest import Cgroup, Guest, NovaIdentity
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.states import PartitionState
from pinner.planning import planner
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.available.numa import bound_of
from pinner.planning.placement import drifts, record
from pinner.planning.planner import plan
from pinner.planning.policy.release import past_of, release

TWO = plain(32, 2)
"""Node 0 has CPUs 0-15, node 1 has 16-31."""
ALONE = plain(32, 2, isolated="4-15,20-31", nohz_full="4-15,20-31")
NOBODY = Past()
NODE = {0: cpus("0-15"), 1: cpus("16-31")}


def strict(*nodes: int) -> MemoryBinding:
    return MemoryBinding("strict", nodes)


def cells(*nodes: int, size: int = 2, pins: dict[int, str] | None = None) -> GuestNuma:
    """Cells of ``size`` vCPUs each, with strict memory on these nodes, as Nova writes them."""
    made = tuple(
        GuestCell(number, CpuSet.of(range(number * size, (number + 1) * size)), GIB, strict(node))
        for number, node in enumerate(nodes)
    )
    return GuestNuma(made, strict(*nodes), pins={vcpu: cpus(pin) for vcpu, pin in (pins or {}).items()})


def two_cells(number: int = 1, **more: object) -> Guest:
    """Nova's guest of two cells: vCPUs 0-1 on node 1, and 2-3 on node 0, with all shared CPUs of these nodes."""
    numa = cells(1, 0, pins={0: "16-31", 1: "16-31", 2: "0-15", 3: "0-15"})
    pins = [str(pin) for pin in numa.pins.values()]
    facts = {"pins": pins, "memory": {0: GIB, 1: GIB}, "numa": numa, "iothreads": 1, "vhost_threads": 1} | more
    return guest(number, 4, TWO.online, **facts)


def host(*guests: Guest, top=TWO) -> Snapshot:
    return snapshot(top, guests, [process(300, 40.0, str(top.online))])


def by_vcpu(made: Plan, name: str = "g1") -> list[str]:
    return [str(want.cpus) for want in made.wanted if want.target.kind == "vcpu" and want.target.name == name]


def beside(made: Plan, name: str = "g1") -> set[str]:
    kinds = ("emulator", "iothread", "vhost")
    return {str(want.cpus) for want in made.wanted if want.target.kind in kinds and want.target.name == name}


def within(here: Snapshot) -> bool:
    """Whether all threads of all bound guests are inside their bounds."""
    for each in here.guests:
        bound = bound_of(each, here.topology)
        for target, threads in each.threads_by_target.items() if bound else ():
            group = bound.of(target)
            if any(thread.affinity != group.within(thread.affinity) for thread in threads):
                return False
    return True


SHARED, LIVE = Request(), Request("isolated", isolation="live")
LOCAL, ISOLATED = Request("numa-local"), Request("isolated")


@pytest.mark.parametrize(
    ("request_", "top", "vcpus", "emulator"),
    [
        (SHARED, TWO, ["20-31", "20-31", "4-15", "4-15"], "2-3,18-19"),
        (LOCAL, TWO, ["20-31", "20-31", "4-15", "4-15"], "2-3,18-19"),
        (ISOLATED, ALONE, ["20", "21", "4", "5"], "2-3,18-19"),
        (replace(SHARED, emulator="4-7,20-23"), TWO, ["18-19,24-31"] * 2 + ["2-3,8-15"] * 2, "4-7,20-23"),
    ],
    ids=["shared-pool", "numa-local", "isolated", "literal"],
)
def test_each_vcpu_stays_on_the_node_of_its_cell_and_qemu_on_the_nodes_of_all_cells(request_, top, vcpus, emulator):
    here = host(two_cells(), guest(2, 2, TWO.online), top=top)
    made = plan(here, "s", request_)
    assert made.unplaced == ()
    assert by_vcpu(made) == vcpus
    assert beside(made) == {emulator}
    after = applied(here, made)
    assert within(after)
    assert plan(after, "s", request_).changes == ()


SINGLE = {
    "cell": cells(1, size=4),
    "memory": GuestNuma(memory=strict(1)),
    "default of the cells": GuestNuma(tuple(replace(c, memory=None) for c in cells(1, size=4).cells), strict(1)),
    "huge pages": GuestNuma(huge_kib={1: GIB}),
    "nova's pins": GuestNuma(pins=dict.fromkeys(range(4), cpus("16-31"))),
}


@pytest.mark.parametrize("numa", SINGLE.values(), ids=SINGLE)
@pytest.mark.parametrize(("request_", "top"), [(SHARED, TWO), (LOCAL, TWO), (ISOLATED, ALONE)])
def test_a_guest_bound_to_one_node_stays_there_with_qemu_wherever_its_devices_are(numa, request_, top):
    made = plan(host(guest(1, 4, TWO.online, memory={0: 9, 1: 1}, numa=numa), top=top), "s", request_)
    assert union(map(cpus, by_vcpu(made))) <= NODE[1]
    assert beside(made) == {"18-19"}


@pytest.mark.parametrize(
    "numa",
    [
        GuestNuma(memory=MemoryBinding("preferred", (1,))),
        GuestNuma(memory=MemoryBinding("interleave", (1,))),
        GuestNuma(memory=MemoryBinding("restrictive", (1,))),
        GuestNuma(memory=strict(0, 1)),
        GuestNuma(memory=strict(7)),
        GuestNuma(huge_kib={0: 1, 1: 1}),
    ],
    ids=["preferred", "interleave", "restrictive", "both nodes", "a node without CPUs", "huge pages on both"],
)
def test_what_binds_no_vcpu_of_the_shared_pool(numa):
    made = plan(host(guest(1, 2, TWO.online, numa=numa)), "s", SHARED)
    assert by_vcpu(made) == ["4-15,20-31"] * 2


def test_numa_local_chooses_among_the_nodes_to_which_the_memory_is_bound():
    three = plain(48, 3)
    here = snapshot(three, [guest(1, 2, three.online, memory={0: GIB}, numa=GuestNuma(memory=strict(1, 2)))])
    assert by_vcpu(plan(here, "s", LOCAL)) == ["20-31"] * 2


def test_a_pin_of_nova_binds_more_than_the_node_and_pinner_takes_nothing_outside_it():
    numa = cells(1, pins={0: "24-31", 1: "24-31"})
    here = snapshot(TWO, [guest(1, 2, TWO.online, numa=numa)], shared=cpus("8-15,24-31"))
    assert by_vcpu(plan(here, "s", SHARED)) == by_vcpu(plan(here, "s", LOCAL)) == ["24-31"] * 2


def live_guest(number: int, numa: GuestNuma, vcpus: int = 4) -> Guest:
    """A guest in a scope of its own, as systemd-machined makes it."""
    units = ("machine.slice", f"machine.slice/g{number}.scope")
    member = PartitionState("member", CpuSet())
    return guest(number, vcpus, TWO.online, numa=numa, cgroups=tuple(Cgroup(unit, member) for unit in units))


def test_live_partitions_have_the_cpus_of_the_guests_nodes_only():
    here = host(live_guest(1, cells(1, 0)), live_guest(2, cells(1, size=2), 2))
    made = plan(here, "s", LIVE)
    assert made.unplaced == ()
    assert by_vcpu(made) == ["20", "21", "4", "5"]
    assert union(map(cpus, by_vcpu(made, "g2"))) <= NODE[1]
    assert union(map(cpus, beside(made, "g2"))) <= NODE[1]


def test_live_partitions_leave_out_a_guest_whose_node_has_no_more_cpu_for_its_emulator():
    guests = [live_guest(number, cells(1), 2) for number in (1, 2, 3)]
    every = host(*guests, live_guest(4, GuestNuma(), 2))
    assert plan(every, "s", LIVE).unplaced == ()
    made = plan(every, "s", replace(LIVE, emulator="2-3,18-19"))
    assert [left.target.name for left in made.unplaced] == ["g3"]
    assert {want.target.name for want in made.wanted if want.target.kind == "vcpu"} == {"g1", "g2", "g4"}


ON_ONE = "cell 0 has strict memory on node 1"


@pytest.mark.parametrize(
    ("request_", "top", "size", "why"),
    [
        (
            Request(housekeeping="16-17", emulator="18-31"),
            TWO,
            2,
            f"{ON_ONE}, where the vCPU set (0-15) has no CPU",
        ),
        (Request(emulator="0-1"), TWO, 2, f"{ON_ONE}, where the emulator set (0-1) has no CPU"),
        (
            LOCAL,
            TWO,
            15,
            f"asked for 15 CPUs, 12 are free: {ON_ONE}; 12 of the CPUs there can be given to its vCPUs",
        ),
        (
            ISOLATED,
            ALONE,
            13,
            f"asked for 13 CPUs, 12 are free: {ON_ONE}; 12 of the CPUs there can be given to its vCPUs",
        ),
        (
            SHARED,
            plain(32, 2, offline="16-31"),
            2,
            f"{ON_ONE}, where the vCPU set (4-15) has no CPU",
        ),
    ],
    ids=["no vCPU set", "no emulator set", "numa-local", "isolated", "offline"],
)
def test_a_guest_that_does_not_fit_in_its_bound_is_left_out_while_the_others_are_placed(request_, top, size, why):
    bound = guest(1, size, TWO.online, memory={1: GIB}, numa=cells(1, size=size))
    made = plan(host(bound, guest(2, 2, TWO.online), top=top), "s", request_)
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", why)]
    assert len(by_vcpu(made, "g2")) == 2


def test_a_flavors_own_strategy_keeps_the_cells_too():
    asked = NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "isolated"})
    made = plan(host(two_cells(nova=asked), guest(2, 2, TWO.online), top=ALONE), "s", SHARED)
    assert by_vcpu(made) == ["20", "21", "4", "5"]
    local = replace(asked, extra_specs={"pinner:strategy": "numa-local"})
    made = plan(host(two_cells(nova=local), guest(2, 2, TWO.online)), "s", SHARED)
    assert by_vcpu(made) == ["20-31", "20-31", "4-15", "4-15"]


def moved(here: Snapshot, masks: dict[int, CpuSet]) -> Snapshot:
    return masked(here, masks)


@pytest.mark.parametrize(("request_", "top"), [(SHARED, TWO), (LOCAL, TWO), (ISOLATED, ALONE)])
def test_drift_and_a_re_pack_keep_the_cells(request_, top):
    here = host(two_cells(), guest(2, 2, TWO.online), top=top)
    made = plan(here, "s", request_)
    placement, after = record(made, here, None), applied(here, made)
    threads = {vcpu.thread.tid: TWO.online for vcpu in here.guests[0].vcpus}
    drifted = moved(after, threads)
    fixing = planner.plan_from_placement(drifted, "s", request_, placement)
    assert {str(each.target) for each in drifts(fixing, placement, drifted)} == {f"guest g1 vcpu {n}" for n in range(4)}
    assert within(applied(drifted, fixing))
    packed = plan(replace(after, guests=(*after.guests, two_cells(3))), "s", replace(request_, rebalance=True))
    assert within(applied(replace(after, guests=(*after.guests, two_cells(3))), packed))


@pytest.mark.parametrize(("request_", "top"), [(SHARED, TWO), (LOCAL, TWO), (ISOLATED, ALONE)])
def test_a_placement_recorded_outside_the_cells_is_corrected(request_, top):
    """An older pinner did not read the cells."""
    here = host(two_cells(numa=GuestNuma()), guest(2, 2, TWO.online), top=top)
    old = plan(here, "s", request_)
    placement, after = record(old, here, None), applied(here, old)
    now = replace(after, guests=(replace(after.guests[0], numa=cells(1, 0)), after.guests[1]))
    assert not within(now)
    assert within(applied(now, planner.plan_from_placement(now, "s", request_, placement)))


def test_isolated_moves_another_guest_when_only_the_node_of_a_cell_is_full():
    small = [guest(n, 2, TWO.online, pins=pins, memory={0: 1}) for n, pins in ((2, ["4", "5"]), (3, ["20", "21"]))]
    large = guest(4, 10, TWO.online, pins=[str(cpu) for cpu in range(22, 32)], memory={1: GIB})
    made = plan(host(two_cells(), *small, large, top=ALONE), "s", ISOLATED)
    assert made.unplaced == ()
    assert union(map(cpus, by_vcpu(made)[:2])) <= NODE[1]
    assert union(map(cpus, by_vcpu(made)[2:])) <= NODE[0]


@pytest.mark.parametrize(
    ("numa", "home"),
    [
        (GuestNuma(), 1),
        (GuestNuma(memory=strict(0, 1)), 1),
        (GuestNuma(memory=MemoryBinding("restrictive", (0,))), 1),
        (GuestNuma(huge_kib={1: GIB}), 1),
        (GuestNuma(huge_kib={0: 4, 1: GIB}), None),
        (GuestNuma(cells(1, 0).cells), None),
    ],
)
def test_memory_follows_the_vcpus_only_within_its_bound(numa, home):
    """The guest's second cell has no plugged-in vCPU yet, but its memory is there."""
    bound = guest(1, 2, TWO.online, memory={0: 1, 1: GIB}, unplugged=2, numa=numa)
    (memory,) = plan(host(bound), "s", LOCAL).memory
    assert memory.home == home


def agents_view(here: Snapshot, made: Plan, past: Past = NOBODY, *, migrate_memory: bool = False) -> None:
    known, _ = identified(made, here)
    require_permitted(known, here, past, migrate_memory=migrate_memory)


@pytest.mark.parametrize(("kind", "wrong"), [("vcpu", "4-15"), ("emulator", "2-3"), ("iothread", "2-3")])
def test_the_agent_refuses_a_thread_outside_the_bound(kind, wrong):
    bound = guest(1, 2, TWO.online, memory={1: GIB}, iothreads=1, numa=cells(1))
    here = host(bound)
    made = plan(here, "s", SHARED)
    agents_view(here, made)
    changed = tuple(
        replace(change, after=cpus(wrong)) if change.target.kind == kind else change for change in made.changes
    )
    with pytest.raises(Refused, match=f"is placed on CPUs {wrong}, but {ON_ONE}"):
        agents_view(here, replace(made, changes=changed))


def test_the_agent_refuses_memory_outside_the_bound():
    free = guest(1, 2, TWO.online, memory={0: 1, 1: GIB})
    made = plan(host(free), "s", LOCAL)
    assert made.memory[0].home == 1
    agents_view(host(free), made, migrate_memory=True)
    with pytest.raises(Refused, match="memory on node 1"):
        agents_view(
            host(replace(free, numa=GuestNuma(huge_kib={0: 1}))), replace(made, changes=()), migrate_memory=True
        )


def released(here: Snapshot, changes: Iterable[AffinityChange], destination: str = "") -> Plan:
    return release(here, "s", here.guests[0].uuid, recorded(changes), cpus(destination), "it migrates")


@pytest.mark.parametrize("destination", ["", "0-7", "24-25"])
def test_a_release_restores_novas_pins_or_as_much_of_the_cells_as_the_destination_has(destination):
    before = host(two_cells())
    made = plan(before, "s", SHARED)
    after = applied(before, made)
    changes = tuple(change for change in made.changes if isinstance(change, AffinityChange))
    back = released(after, changes, destination)
    agents_view(after, back, Past(placed=past_of(recorded(changes))))
    assert within(applied(after, back))
    if not destination:
        assert by_vcpu(back) == ["16-31", "16-31", "0-15", "0-15"]


def test_a_release_of_threads_that_pinner_first_saw_placed_stays_within_the_cells():
    """The vCPUs were plugged in after the placement: nothing is recorded of their earlier CPUs."""
    before = host(two_cells())
    made = plan(before, "s", SHARED)
    after = applied(before, made)
    changes = tuple(replace(c, before=()) for c in made.changes if isinstance(c, AffinityChange))
    back = released(after, changes)
    agents_view(after, back, Past(placed=past_of(recorded(changes))))
    assert by_vcpu(back) == ["16-31", "16-31", "0-15", "0-15"]
    wrong = tuple(replace(change, after=TWO.online) for change in back.changes)
    with pytest.raises(Refused, match="before, and cell 0 has strict memory on node 1 and CPUs 16-31 from Nova"):
        agents_view(after, replace(back, changes=wrong), Past(placed=past_of(recorded(changes))))


MACHINES = sorted({"two-socket", "interleaved", "lopsided", "big", "offline", "32amd64-4s2n4c-cgroup2"} & NAMES.keys())


@pytest.mark.parametrize("machine", MACHINES)
def test_cells_on_every_pair_of_nodes_of_captured_machines(machine):
    top = read_topology(root_of(machine))
    nodes = [node.id for node in top.nodes if node.cpus & top.online - top.isolated]
    pairs = [(one, other) for one in nodes for other in nodes if one != other]
    guests = [
        guest(n, 2, top.online, memory={}, memory_kib=2, numa=cells(*pair, size=1)) for n, pair in enumerate(pairs)
    ]
    free = guest(len(pairs), 2, top.online, memory={}, memory_kib=1)
    here = snapshot(top, [*guests, free])
    for request_ in (SHARED, LOCAL, LIVE):
        made = plan(here, "s", request_)
        placed = {want.target.owner for want in made.wanted if want.target.kind == "vcpu"}
        after = applied(here, made)
        assert within(replace(after, guests=tuple(each for each in after.guests if each.uuid in placed)))
        if request_ is not LIVE:
            assert made.unplaced == ()
            assert plan(after, "s", request_).changes == ()


@pytest.mark.parametrize("within", ["", "0-7", "16-31"])
def test_a_guest_whose_nodes_nova_has_dedicated_since_gets_the_cpus_it_had(within):
    """An agent refuses to confine the guest to Nova's dedicated CPUs, and so refused the whole release."""
    before = host(guest(1, 2, TWO.online, memory={0: GIB}, numa=GuestNuma(memory=strict(0)), iothreads=1))
    placed = plan(before, "s", SHARED)
    now = replace(applied(before, placed), dedicated=TWO.cpus_by_node[0])
    done = recorded(placed.changes)
    made = release(now, "s2", now.guests[0].uuid, done, cpus(within), "it leaves")
    require_permitted(made, now, Past(placed=past_of(done)), migrate_memory=False)
    assert {change.after for change in made.changes} == {TWO.online}
    of_guest = {change.target for change in placed.changes if change.target.kind != "process"}
    assert {change.target for change in made.changes} == of_guest
