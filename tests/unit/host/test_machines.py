"""Every captured machine, read by pinner and by hwloc's lstopo: two independent readers of the same tree."""

import os
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from support.lstopo import Lstopo, cpus

from pinner.host.capture import capture
from pinner.host.sysfs import read_topology
from pinner.host.sysfs_nodes import overlaps
from pinner.model.cpuset import CpuSet
from pinner.model.topology import Topology

MACHINES = os.environ.get("PINNER_MACHINES")
NAMES = sorted(path.name.removesuffix(".tar.bz2") for path in Path(MACHINES or "/nonexistent").glob("*.tar.bz2"))

pytestmark = pytest.mark.skipif(not MACHINES, reason="PINNER_MACHINES does not name the folder of captured machines")

OVERLAPPING = "8em64t-2s2ca2c-buggynuma"
"""Its firmware gives every CPU to all of its 8 nodes. hwloc drops all nodes but the first, and their memory with them;
pinner keeps the memory: the other nodes have no CPU then."""

MODULES = "64amd64-4s2n4ca2co"
"""Two cores of an AMD Bulldozer module share its front end and floating-point unit. The kernel calls them siblings,
hwloc (by cpuinfo's family) cores of their own. For pinning the kernel's word is the right one: they contend."""

NO_DIR = "2arm-2c"
"""A kernel without NUMA: no node folder. Both readers make one node of the whole machine."""


def by(topology: Topology, *fields: str) -> set[CpuSet]:
    groups = defaultdict(set)
    for cpu in topology.cpus:
        key = tuple(getattr(cpu, field) for field in fields)
        if None not in key:
            groups[key].add(cpu.id)
    return {CpuSet.of(group) for group in groups.values()}


@pytest.fixture(scope="module", params=NAMES)
def machine(request, tmp_path_factory):
    name = request.param
    folder = tmp_path_factory.mktemp("machine")
    subprocess.run(["tar", "-xjf", Path(MACHINES) / f"{name}.tar.bz2", "-C", folder], check=True)
    (root,) = folder.iterdir()
    return name, read_topology(root), Lstopo.of(root), root


def test_there_are_machines():
    assert len(NAMES) >= 15


def test_cpus(machine):
    _, topology, lstopo, _ = machine
    whole = lstopo.all("Machine")[0]
    assert topology.online == cpus(whole) == CpuSet.of(int(unit.attrib["os_index"]) for unit in lstopo.all("PU"))
    assert CpuSet.of(cpu.id for cpu in topology.cpus) == cpus(whole, "complete_cpuset")
    assert topology.offline == cpus(whole, "complete_cpuset") - cpus(whole)


def test_nodes_and_their_memory(machine):
    name, topology, lstopo, root = machine
    reported = {int(node.attrib["os_index"]): node for node in lstopo.all("NUMANode")}
    ours = {node.id: node for node in topology.nodes}
    assert reported
    if name == OVERLAPPING:
        assert set(reported) == {0}
        assert set(ours) == set(range(8))
        assert len(overlaps(root)) == 7
    else:
        assert set(ours) == set(reported)
        assert not overlaps(root)
    with_cpus = {node.cpus for node in topology.nodes if node.cpus}
    for id_, node in reported.items():
        assert ours[id_].memory_kib * 1024 == int(node.get("local_memory", 0))
        # hwloc gives a node without CPUs those that are nearest to it; pinner leaves it without.
        near = cpus(node)
        assert ours[id_].cpus == near or (
            not ours[id_].cpus and all(held <= near or not held & near for held in with_cpus)
        )
    assert {cpu.id: cpu.node for cpu in topology.cpus if cpu.node is not None} == {
        cpu: node.id for node in topology.nodes for cpu in node.cpus
    }
    assert all(node.free_kib <= node.memory_kib for node in topology.nodes)


def test_huge_pages(machine):
    _, topology, lstopo, _ = machine
    ours = {node.id: {pages.size_kib: pages.total for pages in node.hugepages} for node in topology.nodes}
    for node in lstopo.all("NUMANode"):
        reported = {int(page.attrib["size"]) // 1024: int(page.attrib["count"]) for page in node.findall("page_type")}
        reported.pop(4, None)
        assert ours[int(node.attrib["os_index"])] == reported


def test_cores_and_siblings(machine):
    name, topology, lstopo, _ = machine
    cores = {cpus(core): int(core.attrib["os_index"]) for core in lstopo.all("Core")}
    assert CpuSet.of(cpu for core in cores for cpu in core) == topology.online
    for cpu in topology.cpus:
        if not cpu.online:
            assert (cpu.core, cpu.siblings) == (None, CpuSet.of([cpu.id])) or name == "16em64t-4s2c2t-offlines"
        elif name == MODULES:
            assert cores[CpuSet.of([cpu.id])] == cpu.core
            assert len(cpu.siblings) == 2
        else:
            assert cores[cpu.siblings & topology.online] == cpu.core


def test_packages_and_dies(machine):
    name, topology, lstopo, _ = machine
    packages = {cpus(package): package.get("os_index") for package in lstopo.all("Package")}
    if name == "256ppc-8n8s4t":
        # The kernel says package -1, "unknown"; hwloc makes one of every core, without a number.
        assert set(packages.values()) == {None}
        assert {cpu.socket for cpu in topology.cpus} == {None}
        return
    ours = defaultdict(set)
    for cpu in topology.cpus:
        if cpu.online:
            ours[cpu.socket].add(cpu.id)
    assert {CpuSet.of(group): str(socket) for socket, group in ours.items()} == packages
    # hwloc reports dies only where a package has several.
    assert lstopo.sets("Die") <= by(topology, "socket", "die")


def test_level_3_domains(machine):
    _, topology, lstopo, _ = machine
    assert set(topology.l3_domains) == lstopo.sets("L3Cache")
    for cpu in topology.cpus:
        if cpu.l3 is None:
            assert not any(cpu.id in domain for domain in topology.l3_domains)
        else:
            assert cpu.id in topology.l3_domains[cpu.l3]


def test_distances(machine):
    name, topology, lstopo, _ = machine
    ours = {node.id: dict(node.distances) for node in topology.nodes}
    reported = lstopo.distances()
    assert bool(reported) == (len(ours) > 1 and name != OVERLAPPING)
    assert not reported or ours == reported


def test_devices(machine):
    _, topology, lstopo, _ = machine
    ours = {(device.kind, device.name): device for device in topology.devices}
    node_cpus = {node.id: node.cpus for node in topology.nodes}
    functions = [device for device in lstopo.all("PCIDev") + lstopo.all("Bridge") if "pci_busid" in device.attrib]
    for device in functions:
        mine = ours["pci", device.attrib["pci_busid"]]
        class_, model, *_ = device.attrib["pci_type"].split()
        assert mine.description == f"{class_} {model.strip('[]')}"
        if mine.node is not None:
            # hwloc hangs all behind a host bridge where the bridge says that it is, which may be nowhere in particular.
            near = cpus(next(above for above in device.iterancestors("object") if "cpuset" in above.attrib))
            assert near in (node_cpus[mine.node], topology.online)
    # hwloc leaves out a bridge that leads to no bus.
    left_out = {name for kind, name in ours if kind == "pci"} - {device.attrib["pci_busid"] for device in functions}
    assert all(ours["pci", name].description.startswith("0604 ") for name in left_out)
    for device in (device for device in lstopo.all("OSDev") if device.attrib["osdev_type"] == "2"):
        behind = next(above for above in device.iterancestors("object") if above.attrib["type"] == "PCIDev")
        mine = ours["net", device.attrib["name"]]
        assert mine.description == behind.attrib["pci_busid"]
        assert mine.node == ours["pci", behind.attrib["pci_busid"]].node


@pytest.mark.parametrize("scrub", [False, True])
def test_a_capture_of_it_is_the_same_machine(machine, tmp_path, scrub):
    _, topology, _, root = machine
    assert capture(root, tmp_path / "copy", scrub=scrub) > 10
    again = read_topology(tmp_path / "copy")
    assert again.cpus == topology.cpus
    assert again.nodes == topology.nodes
    assert again.l3_domains == topology.l3_domains
    if not scrub:
        assert again == topology
