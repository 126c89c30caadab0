"""The strategy numa-local: the node of each guest."""

from dataclasses import replace

import pytest
from data.field.local import bound_beside_free, gpu_on_a_bare_node
from support.hosts import GIB, cpus, guest, interleaved, plain, snapshot, topology

from pinner.model.machine.topology import Device
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.planning.planner import plan
from pinner.planning.questions.explanation import explain_placement

DEVICES = (Device("pci", "0000:3b:00.0", 1), Device("pci", "0000:5e:00.0", 0), Device("pci", "0000:00:00.0", None))
HOST = plain(32, 2, devices=DEVICES)
"""Pools of 12 CPUs a node: 4-15 and 20-31."""


def nodes(made: Plan) -> dict[str, str]:
    return {want.target.name: str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"}


NODE_0, NODE_1 = "4-15", "20-31"


@pytest.mark.parametrize(
    ("memory", "pci", "expected"),
    [
        ({0: 4, 1: 6}, (), NODE_1),
        ({0: 6, 1: 4}, (), NODE_0),
        ({0: 6 * GIB, 1: 4 * GIB}, ("0000:3b:00.0",), NODE_0),
        ({0: 5}, ("0000:3b:00.0",), NODE_1),
        ({1: 5}, ("0000:5e:00.0",), NODE_0),
        ({}, (), NODE_0),
        ({1: 5}, ("0000:00:00.0",), NODE_1),
    ],
    ids=["memory", "memory-0", "memory-over-device", "tie-device", "tie-device-0", "lowest", "device-nowhere"],
)
def test_a_guest_gets_the_node_of_its_memory_and_devices(
    memory: dict[int, int], pci: tuple[str, ...], expected: str
) -> None:
    made = plan(snapshot(HOST, [guest(1, 4, HOST.online, memory=memory, pci=pci)]), "s", Request("numa-local"))
    assert nodes(made) == {"g1": expected}


@pytest.mark.parametrize(
    ("memory", "pci", "reason"),
    [
        ({0: 1, 1: 3}, ("0000:3b:00.0",), "node 1 has 75% of the guest's memory and 100% of its PCI devices"),
        ({1: 3}, (), "node 1 has 100% of the guest's memory"),
        ({}, (), "node 0 has room for the guest"),
    ],
)
def test_the_reason_names_the_memory_and_devices_on_the_node(
    memory: dict[int, int], pci: tuple[str, ...], reason: str
) -> None:
    made = plan(snapshot(HOST, [guest(1, 1, HOST.online, memory=memory, pci=pci)]), "s", Request("numa-local"))
    assert [want.reason for want in made.wanted if want.target.kind == "vcpu"] == [reason]


def test_a_node_without_memory_but_with_the_gpu_is_worse_than_the_node_of_the_memory() -> None:
    made = plan(gpu_on_a_bare_node.HOST, "s", Request("numa-local"))
    assert nodes(made) == {"g1": str(gpu_on_a_bare_node.RIGHT)}
    other = explain_placement(gpu_on_a_bare_node.HOST, Request("numa-local"), "g1").alternatives[0]
    assert (other.node, other.cost["remote_memory"], other.cost["remote_devices"]) == (1, 16 * 1024, -1)


@pytest.mark.parametrize(("weight", "node"), [(1.0, NODE_0), (0.0, NODE_1)])
def test_memory_counts_by_its_weight(weight: float, node: str) -> None:
    host = snapshot(HOST, [guest(1, 4, HOST.online, memory={0: GIB}, pci=("0000:3b:00.0",))])
    assert nodes(plan(host, "s", Request("numa-local", weights={"remote_memory": weight}))) == {"g1": node}


def test_a_bound_guest_is_placed_before_a_larger_free_one() -> None:
    made = plan(bound_beside_free.HOST, "s", Request("numa-local"))
    assert nodes(made) == bound_beside_free.RIGHT
    assert made.warnings == ()
    (reason,) = {want.reason for want in made.wanted if want.target.kind == "vcpu" and want.target.name == "g2"}
    assert reason == "node 1 has room for the guest; node 0, which would be nearer, has too few free CPUs"


def test_a_guest_leaves_its_node_only_where_that_is_better() -> None:
    """g1 alone would be on node 0, which has as many CPUs; g2 is alone on the node of its memory there."""
    here = [guest(1, 4, cpus(NODE_1), memory={}), guest(2, 10, cpus(NODE_1), memory={0: GIB})]
    made = plan(snapshot(HOST, here), "s", Request("numa-local"))
    assert nodes(made) == {"g1": NODE_1, "g2": NODE_0}


def test_free_cpus_count_more_than_memory_and_the_largest_guest_is_first() -> None:
    guests = [guest(number, vcpus, HOST.online, memory={0: GIB}) for number, vcpus in ((1, 4), (2, 10), (3, 8))]
    made = plan(snapshot(HOST, guests), "s", Request("numa-local"))
    assert nodes(made) == {"g2": NODE_0, "g3": NODE_1, "g1": NODE_1}
    assert made.warnings == ()


def test_a_node_with_more_vcpus_than_cpus_gives_a_warning() -> None:
    guests = [guest(number, 12, HOST.online, memory={0: GIB}) for number in (1, 2, 3)]
    made = plan(snapshot(HOST, guests), "s", Request("numa-local"))
    assert nodes(made) == {"g1": NODE_0, "g2": NODE_1, "g3": NODE_0}
    assert made.warnings == ("node 0 gets 12 more vCPUs than it has CPUs for vCPUs",)


def test_vcpus_of_guests_that_are_not_placed_use_the_cpus_of_their_node() -> None:
    guests = [guest(1, 4, HOST.online, memory={0: GIB}), guest(2, 10, cpus(NODE_0))]
    assert nodes(plan(snapshot(HOST, guests), "s", Request("numa-local", guests=("g1",)))) == {"g1": NODE_1}


def test_a_guest_with_more_memory_than_any_node_is_unplaced_with_the_numbers() -> None:
    host = snapshot(plain(32, 2, memory_kib={0: 4 * GIB, 1: 6 * GIB}), [guest(1, 2, cpus("0-31"), memory_kib=8 * GIB)])
    made = plan(host, "s", Request("numa-local"))
    assert [left.why for left in made.unplaced] == [
        "asked for 2 CPUs, 12 are free: no NUMA node with enough CPUs has the guest's 8388608 KiB of memory; "
        "the largest has 6291456 KiB"
    ]
    assert made.changes == ()


def test_a_guest_is_placed_on_a_host_with_nodes_without_cpus_or_memory() -> None:
    """Node 2 has no CPU, node 5 no memory, ids have gaps."""
    top = topology(
        {2: [], 5: [[c] for c in range(16)], 9: [[c] for c in range(100, 132, 2)]},
        memory_kib={2: 64 * GIB, 5: 0, 9: 64 * GIB},
    )
    made = plan(snapshot(top, [guest(1, 2, top.online, memory={2: GIB})]), "s", Request("numa-local"))
    assert set(nodes(made).values()) == {"108,110,112,114,116,118,120,122,124,126,128,130"}
    assert {str(w.cpus) for w in made.wanted if w.target.kind == "emulator"} == {"104,106"}


@pytest.mark.parametrize("strategy", ["numa-local", "isolated"])
def test_a_guest_is_placed_on_a_node_without_memory_where_no_other_node_has_cpus(strategy: str) -> None:
    """Node 0 has all CPUs and no memory, node 1 all the memory."""
    top = topology({0: [[c] for c in range(16)], 1: []}, memory_kib={1: 64 * GIB}, isolated="8-15")
    guests = [guest(1, 4, cpus("0-7"), memory={1: GIB}), guest(2, 2, cpus("0-7"), memory={1: GIB})]
    made = plan(snapshot(top, guests), "s", Request(strategy))
    assert (made.blocked, made.unplaced) == ("", ())
    assert set(nodes(made)) == {"g1", "g2"}


def test_a_node_without_memory_counts_with_the_memory_of_its_nearest_node() -> None:
    top = topology(
        {0: [[c] for c in range(16)], 1: [[c] for c in range(16, 24)], 2: []}, memory_kib={1: 2 * GIB, 2: 8 * GIB}
    )
    far = {0: {0: 10, 1: 12, 2: 40}, 1: {0: 12, 1: 10, 2: 40}, 2: {0: 40, 1: 40, 2: 10}}
    top = replace(top, nodes=tuple(replace(node, distances=far[node.id]) for node in top.nodes))
    made = plan(snapshot(top, [guest(1, 8, top.online, memory_kib=4 * GIB)]), "s", Request("numa-local"))
    assert "the largest has 2097152 KiB" in made.unplaced[0].why
    near = replace(top, nodes=tuple(replace(node, distances={}) for node in top.nodes))
    made = plan(snapshot(near, [guest(1, 8, top.online, memory_kib=4 * GIB)]), "s", Request("numa-local"))
    assert made.unplaced == ()


def test_a_node_with_memory_of_its_own_is_better_than_one_without() -> None:
    top = topology({0: [[c] for c in range(16)], 1: [[c] for c in range(16, 24)]}, memory_kib={1: 64 * GIB})
    made = plan(snapshot(top, [guest(1, 2, top.online, memory={})]), "s", Request("numa-local"))
    assert nodes(made) == {"g1": "18-23"}


def test_unplugged_vcpus_are_skipped_and_need_no_cpu() -> None:
    made = plan(snapshot(HOST, [guest(1, 2, HOST.online, unplugged=30)]), "s", Request("numa-local"))
    assert [want.target.part for want in made.wanted if want.target.kind == "vcpu"] == [0, 1]


def test_a_literal_emulator_set_is_used_whole() -> None:
    top = interleaved(16)
    made = plan(snapshot(top, [guest(1, 2, top.online)]), "s", Request("numa-local", emulator="2-3,18-19"))
    assert {str(w.cpus) for w in made.wanted if w.target.kind == "emulator"} == {"2-3,18-19"}


def test_offline_cpus_in_its_affinity_do_not_move_a_guest() -> None:
    """Both nodes have as many free CPUs, so it stays where it is."""
    top = plain(32, 2, offline="12-15,28-31")
    (pool,) = nodes(plan(snapshot(top, [guest(1, 4, top.online, memory={1: 5})]), "s", Request("numa-local"))).values()
    assert cpus(pool) <= cpus("16-27")
    for mask in (pool, f"{pool},28-31"):
        host = snapshot(top, [guest(1, 4, top.online, pins=[mask] * 4, memory={}, memory_kib=0)])
        assert nodes(plan(host, "s", Request("numa-local"))) == {"g1": pool}
