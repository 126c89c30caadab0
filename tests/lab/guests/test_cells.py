"""A guest of two cells with strict memory, as Nova defines it for hw:numa_nodes: inside its cells at every step."""

import time
from contextlib import ExitStack, contextmanager

import pytest
from private_libvirt import guest_xml
from support.system.lab import (
    CALLER,
    apply,
    boot_disk,
    ended,
    guests,
    inventory,
    masks,
    name,
    plan,
    planned,
    rollback,
    server,
    wrong,
)

from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import Request
from pinner.model.policy import Policy

GUEST = "cells"
SECONDS = 120
"""How long an emulated host may take to move a thread back."""
VCPUS = {0: (0, 1), 1: (2, 3)}
"""The vCPUs of each cell."""
METADATA = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>i</nova:name>
<nova:flavor name="m1" id="1"><nova:extraSpecs><nova:extraSpec name="hw:numa_nodes">2</nova:extraSpec>
</nova:extraSpecs></nova:flavor></nova:instance></metadata>"""


def definition(disk, nodes):
    """The definition as Nova writes it, with cell 0 on the second node, and cell 1 on the first."""
    home = {0: nodes[1], 1: nodes[0]}
    every = nodes[0].cpus | nodes[1].cpus
    pins = "".join(f"<vcpupin vcpu='{v}' cpuset='{home[cell].cpus}'/>" for cell, vcpus in VCPUS.items() for v in vcpus)
    memory = "".join(f"<memnode cellid='{cell}' mode='strict' nodeset='{node.id}'/>" for cell, node in home.items())
    cells = "".join(f"<cell id='{c}' cpus='{v[0]}-{v[-1]}' memory='32' unit='MiB'/>" for c, v in VCPUS.items())
    pins += f"<emulatorpin cpuset='{every}'/><iothreadpin iothread='1' cpuset='{every}'/>"
    extra = (
        f"{METADATA}<cputune>{pins}</cputune>"
        f"<numatune><memory mode='strict' nodeset='{nodes[0].id},{nodes[1].id}'/>{memory}</numatune>"
        f"<cpu><numa>{cells}</numa></cpu>"
    )
    return guest_xml(GUEST, vcpus=4, memory_mib=64, extra=extra, devices=disk)


@contextmanager
def guest_of_two_cells(host):
    """The guest, on a host whose nova.conf sets nothing."""
    disk = boot_disk(host)
    host.run("mkdir -p /etc/nova && : > /etc/nova/nova.conf")
    host.run("virsh -q define /dev/stdin", stdin=definition(disk, inventory(host).topology.nodes))
    host.run(f"virsh -q start {GUEST}")
    try:
        yield
    finally:
        host.run(f"virsh -q destroy {GUEST}; virsh -q undefine {GUEST}; rm /etc/nova/nova.conf", check=False)


@pytest.fixture(scope="module")
def cells_host(lab_host):
    """The host with the guest of two cells and floating guests."""
    host = lab_host("two-socket")
    with ExitStack() as undo:
        undo.enter_context(guest_of_two_cells(host))
        undo.enter_context(guests(host, {"alpha": 2, "beta": 1}))
        yield host


def guest_of(host):
    return next(guest for guest in inventory(host).guests if guest.name == GUEST)


def outside(host):
    """The threads of the guest's vCPUs that the kernel does not keep inside their cells' nodes."""
    nodes = inventory(host).topology.nodes
    home = {vcpu: nodes[1 - cell].cpus for cell, vcpus in VCPUS.items() for vcpu in vcpus}
    kernel = {tid: mask for (tid, _), (_, mask) in masks(host).items()}
    found = {vcpu.id: kernel[vcpu.thread.tid] for vcpu in guest_of(host).vcpus}
    return {vcpu: str(mask) for vcpu, mask in found.items() if mask - home[vcpu]}


def vcpu_pins(host):
    """Nova's pins in the definition: pinner never changes them."""
    return host.run(f"virsh vcpupin {GUEST} --config").out


def wait_until_inside(host):
    deadline = time.monotonic() + SECONDS
    while found := outside(host):
        assert time.monotonic() < deadline, (found, server(host).drift(name(host)))
        time.sleep(0.5)


def drift_and_return(host, strategy):
    """Another program moves a vCPU out of its cell's node, and an enforced policy moves it back."""
    request, thread = Request(strategy), guest_of(host).vcpus[0].thread
    server(host).set_policy(name(host), Policy(request, "observe"), CALLER)
    host.run(f"virsh vcpupin {GUEST} 0 0 --live")
    assert outside(host) == {0: "0"}
    drifts = [drift for drift in server(host).drift(name(host)).drifts if drift.target.name == GUEST]
    assert [(str(drift.target), drift.expected) for drift in drifts] == [(f"guest {GUEST} vcpu 0", thread.affinity)]
    server(host).set_policy(name(host), Policy(request, "enforce"), CALLER)
    wait_until_inside(host)
    server(host).set_policy(name(host), Policy(request, "observe"), CALLER)


def re_pack(host, strategy):
    """A guest starts, and a re-pack places all guests anew."""
    with guests(host, {"gamma": 3}):
        packed = plan(host, strategy, rebalance=True)
        assert "gamma" in {change.target.name for change in packed.changes if isinstance(change, AffinityChange)}
        run, state = apply(host, packed)
        assert state == "applied"
        assert outside(host) == {}
        assert rollback(host, run) == "rolled_back"
        assert outside(host) == {}


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_guest_stays_inside_its_cells_from_the_plan_to_the_rollback(cells_host, strategy):
    host = cells_host
    before, pins = masks(host), vcpu_pins(host)
    cells = guest_of(host).numa.cells
    assert [(cell.memory.mode, cell.memory.nodes) for cell in cells] == [("strict", (1,)), ("strict", (0,))]
    assert outside(host) == {}
    new_plan = plan(host, strategy)
    assert {want.target.name for want in new_plan.wanted if want.target.kind == "vcpu"} == {GUEST, "alpha", "beta"}
    assert [memory.home for memory in new_plan.memory if memory.target.name == GUEST] == [None]
    _, state = apply(host, new_plan)
    assert state == "applied"
    assert wrong(planned(before, new_plan), masks(host)) == []
    assert outside(host) == {}
    drift_and_return(host, strategy)
    re_pack(host, strategy)
    _, state = ended(host, server(host).rollback_all(name(host), CALLER))
    assert state == "rolled_back"
    assert outside(host) == {}
    assert wrong(before, masks(host)) == []
    assert vcpu_pins(host) == pins


def test_an_isolated_plan_for_live_partitions_stays_inside_the_cells(cells_host):
    host = cells_host
    nodes = inventory(host).topology.nodes
    new_plan = plan(host, "isolated", isolation="live", guests=(GUEST,))
    placed = {w.target.part: w.cpus for w in new_plan.wanted if w.target.kind == "vcpu"}
    assert new_plan.unplaced == ()
    for cell, vcpus in VCPUS.items():
        assert CpuSet.of(cpu for vcpu in vcpus for cpu in placed[vcpu]) <= nodes[1 - cell].cpus


def test_a_guest_whose_node_has_no_cpu_for_it_is_left_out_and_the_others_are_placed(cells_host):
    host = cells_host
    home, _ = inventory(host).topology.nodes
    housekeeping = CpuSet.of(sorted(home.cpus)[:2])
    new_plan = plan(host, housekeeping=str(housekeeping), emulator=str(home.cpus - housekeeping))
    (left,) = new_plan.unplaced
    assert left.target.name == GUEST
    assert "cell 1 has strict memory on node 0" in left.why
    assert {want.target.name for want in new_plan.wanted if want.target.kind == "vcpu"} == {"alpha", "beta"}
