"""The CPUs that live partitions leave to guests without one, and to Open vSwitch."""

from dataclasses import replace

import pytest
from support.hosts import GIB, KERNEL, cpus, guest, plain, process, snapshot, topology
from support.values import MEMBER

from pinner.model.guest.guest import Cgroup, OperatorPin
from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import OvsDpdk, OvsMasks
from pinner.model.states import PartitionState
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.planner import plan

LIVE = Request("isolated", isolation="live")
DAEMON = process(300, 40.0, "0-15")


def cgroups(number: int) -> tuple[Cgroup, Cgroup]:
    return Cgroup("machine.slice", MEMBER), Cgroup(f"machine.slice/g{number}.scope", MEMBER)


def strict(node: int) -> GuestNuma:
    return GuestNuma(memory=MemoryBinding("strict", (node,)))


def top(count: int, nodes: int = 1):
    return plain(count, nodes, kernel=replace(KERNEL, unbound=cpus(f"0-{count - 1}")))


def partitions(made: Plan) -> list[str]:
    return [str(want.state) for want in made.wanted if want.target.kind == "partition"]


def test_strict_memory_of_a_guest_that_nova_pins_elsewhere_is_no_claim_of_its_cpus() -> None:
    pinned = guest(
        1, 2, cpus("0-7"), pins=["1", "2"], dedicated=True, numa=strict(1), memory={1: 2 * GIB}, cgroups=cgroups(1)
    )
    placed = guest(3, 2, cpus("0-7"), memory={1: 2 * GIB}, cgroups=cgroups(3))
    storage = process(400, 90.0, "6", name="ceph-osd", reasons=["restricted"], reserves="configured")
    made = plan(snapshot(top(8, 2), [pinned, placed], [storage]), "s", LIVE)
    assert (made.unplaced, made.blocked) == ((), "")
    assert partitions(made) == ["root 1-3,5,7", "isolated 3,5,7"]


@pytest.mark.parametrize("numa", [GuestNuma(), strict(0)], ids=["free", "strict memory on the other node"])
def test_a_guest_that_stays_keeps_the_cpus_of_its_definition(numa: GuestNuma) -> None:
    confined = cpus("14-15")
    stays = guest(2, 2, confined, restriction=confined, numa=numa, memory={0: 2 * GIB}, cgroups=cgroups(2))
    guests = [guest(1, 6, cpus("0-15"), memory={1: 2 * GIB}, cgroups=cgroups(1)), stays]
    made = plan(snapshot(top(16, 2), guests, [DAEMON]), "s", LIVE)
    taken = [want.state.cpus for want in made.wanted if str(want.state).startswith("isolated")]
    own = [want.cpus for want in made.wanted if (want.target.kind, want.target.name) == ("vcpu", "g2")]
    assert made.blocked == ""
    assert own or all(confined - each for each in taken)


def test_a_slice_whose_guests_are_pinned_to_polling_cpus_becomes_no_partition() -> None:
    pins = tuple(OperatorPin("vcpu", vcpu, cpus("3"), "definition") for vcpu in range(2))
    owner = guest(3, 2, cpus("0-15"), pins=["3", "3"], operator_pins=pins, cgroups=cgroups(3))
    ovs = OvsDpdk(OvsMasks(pmd=cpus("2-4"), lcore=cpus("5")), polling=cpus("2-4"))
    host = snapshot(top(16), [guest(1, 2, cpus("0-15"), cgroups=cgroups(1)), owner], [DAEMON], ovs=ovs)
    made = plan(host, "s", LIVE)
    assert partitions(made) == []
    assert made.blocked == (
        "guests in machine.slice own CPUs 3, which Open vSwitch (DPDK) uses: "
        "a partition of machine.slice would take them"
    )


def test_a_guest_of_a_small_slice_has_qemus_own_threads_on_none_of_its_vcpus_cpus() -> None:
    """Of node 1, which is one core, the slice allows 5-7: emulators and vCPUs share them, and vCPU 3 gets CPU 5."""
    cores = {node: [range(4 * node, 4 * node + 4)] for node in range(4)}
    small, owned = cpus("5-14"), OperatorPin("vcpu", 0, cpus("8-11"), "definition")
    wide = guest(1, 4, small, cpu_limits=(CpuLimit("machine.slice", small),), cgroups=cgroups(1))
    pinned = guest(2, 1, cpus("0-15"), pins=["8-11"], operator_pins=(owned,), excluded=True, cgroups=cgroups(2))
    made = plan(snapshot(topology(cores, kernel=top(16).kernel), [wide, pinned]), "s", LIVE)
    places = {(want.target.kind, want.target.part): str(want.cpus) for want in made.wanted if not want.state}
    vcpus = {("vcpu", vcpu): cpu for vcpu, cpu in enumerate(("12", "13", "14", "5"))}
    assert places == {("emulator", None): "6"} | vcpus
    assert partitions(made) == ["root 5-14", "isolated 5-6,12-14"]


def test_the_partition_of_a_slice_bounds_its_guests_unless_the_plan_makes_that_partition() -> None:
    slice_ = cpus("3-11")
    root = Cgroup("machine.slice", PartitionState("root", slice_))
    inside = guest(
        2,
        2,
        slice_,
        cpu_limits=(CpuLimit("machine.slice", slice_),),
        cgroups=(root, Cgroup("machine.slice/g2.scope", MEMBER)),
    )
    host = snapshot(top(16), [guest(1, 2, cpus("0-15")), inside], [DAEMON])
    floating = plan(host, "s", Request())
    places = {(want.target.kind, str(want.cpus)) for want in floating.wanted if want.target.name == "g2"}
    assert places == {("emulator", "3"), ("vcpu", "4-11")}
    live = plan(host, "s", LIVE)
    assert partitions(live) == ["root 2-15", "isolated 2,4-5"]
    require_permitted(identified(live, host)[0], host, Past(), migrate_memory=False)
