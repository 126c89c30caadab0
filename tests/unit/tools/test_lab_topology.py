"""Topologies of the lab: the included ones, and files that contradict themselves."""

import struct

import pytest
from lab import firmware, topology
from lab.errors import LabError
from lab.topology import Position

from pinner.model.cpuset import CpuSet

NODE = '[[node]]\nsocket = 0\ncpus = "0-3"\nmemory_mib = 64\n'
ONE = f"distances = [[10]]\n{NODE}"
TWO = f'distances = [[10, 20], [20, 10]]\n{NODE}[[node]]\nsocket = 1\ncpus = "4-7"\nmemory_mib = 64\n'


@pytest.mark.parametrize(
    ("name", "nodes", "cpus", "shape"),
    [
        ("two-socket", 2, 16, (2, 4, 2)),
        ("isolated-boot", 2, 16, (2, 4, 2)),
        ("interleaved", 4, 32, (2, 8, 2)),
        ("lopsided", 4, 14, (3, 4, 2)),
        ("devices", 2, 8, (2, 4, 1)),
        ("big", 8, 64, (8, 4, 2)),
    ],
)
def test_the_included_topologies_are_loaded(name, nodes, cpus, shape):
    loaded = topology.load(name)
    assert (len(loaded.nodes), len(loaded.positions), (loaded.sockets, loaded.cores, loaded.threads)) == (
        nodes,
        cpus,
        shape,
    )
    assert name in topology.known()


def test_siblings_may_have_distant_numbers():
    positions = topology.load("interleaved").positions
    assert positions[0] == Position(socket=0, core=0, thread=0, node=0)
    assert positions[16] == Position(socket=0, core=0, thread=1, node=0)
    assert positions[1] == Position(socket=1, core=0, thread=0, node=2)
    assert positions[8].node == 1


def test_isolated_boot_is_two_socket_with_arguments():
    plain, isolated = topology.load("two-socket"), topology.load("isolated-boot")
    assert (plain.positions, plain.nodes, plain.distances) == (isolated.positions, isolated.nodes, isolated.distances)
    assert isolated.kernel.startswith("isolcpus=")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("threads =", "Invalid value"),
        ("", "no [[node]]"),
        (f"sockets = 2\n{ONE}", "unknown keys: sockets"),
        (f"threads = 'two'\n{ONE}", "threads = 'two': not a int"),
        (f"{ONE}cores = 2\n", "node 0: unknown keys: cores"),
        ("node = [1]\n", "write [[node]]"),
        (ONE.replace("0-3", "0-x"), "node 0 cpus"),
        (ONE.replace("0-3", "0,2"), "CPU 1 is on no node"),
        (ONE.replace("64", "0"), "node 0 must have CPU 0 and memory"),
        (ONE.replace("64", "-1"), "not negative"),
        (TWO.replace("4-7", "3-7"), "node 1: CPU 3 is on another node, too"),
        (TWO.replace("[20, 10]", "[20, 11]"), "node 1 to 1 is 11"),
        (TWO.replace("[20, 10]", "[20]"), "not 2 rows of 2"),
        (TWO.replace("socket = 1", "socket = 2"), "sockets run from 0"),
        (f"threads = 3\n{ONE}", "CPU 4, a sibling of 3, is not on its node 0"),
        (f"threads = 2\nstep = 4\n{TWO}", "CPU 4, a sibling of 0, is not on its node 0"),
        (f"threads = 0\n{ONE}", "at least 1"),
        (f'{ONE}[[device]]\nmodel = "ne2k_pci"\nnode = 0\n', "device model = 'ne2k_pci': not one of e1000e, nvme"),
        (f'{ONE}[[device]]\nmodel = "nvme"\n', "device nvme: node = -1 is no node of this host"),
        (f'{ONE}[[device]]\nmodel = "nvme"\nnode = 0\nqueues = 2\n', "device nvme: queues = 2"),
        (f'{ONE}[[device]]\nmodel = "virtio-net-pci"\nnode = 0\n', "device virtio-net-pci: queues = 0"),
        (f'{ONE}[[device]]\nmodel = "nvme"\nbus = 3\n', "device: unknown keys: bus"),
        (f"device = [1]\n{ONE}", "write [[device]]"),
        (f"distances = [[10]]\n[[node]]\n{NODE}", "node 0: neither CPUs nor memory"),
    ],
)
def test_a_contradiction_is_an_error_in_one_line(text, why):
    with pytest.raises(LabError) as caught:
        topology.parse(text, "x")
    assert str(caught.value).startswith("topology x: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_error_for_an_unknown_name_lists_the_known_names():
    with pytest.raises(LabError, match="topology nowhere: not found; known: big, devices, interleaved"):
        topology.load("nowhere")


def test_a_topology_is_loaded_from_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text(ONE)
    assert topology.load(str(tmp_path / "mine.toml")).nodes[0].cpus == CpuSet.of(range(4))


@pytest.mark.parametrize("name", topology.known())
def test_the_firmware_lists_each_cpu_once_in_order(name):
    loaded = topology.load(name)
    table = firmware.madt(loaded)
    assert sum(table) & 0xFF == 0
    assert struct.unpack_from("<4sI", table) == (b"APIC", len(table))
    entries, at = [], 44
    while at < len(table):
        if table[at] == 0:
            entries.append(table[at + 3])
        at += table[at + 1]
    assert entries == [firmware.apic_id(loaded, position) for position in loaded.positions]
    assert len(set(entries)) == len(loaded.positions)
    assert firmware.early_archive(loaded).startswith(b"070701")
    assert len(firmware.early_archive(loaded)) % 512 == 0
