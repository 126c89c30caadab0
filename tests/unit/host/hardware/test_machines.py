"""Compares pinner with hwloc's lstopo, an independent program, on every captured machine."""

from collections import defaultdict

import pytest
from support.machines import ARCHIVES, CASES, OWN, root_of
from support.system.lstopo import Lstopo, cpus

from pinner.host.captured.capture import capture
from pinner.host.hardware.sysfs import overlaps, read_topology
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Topology

OVERLAPPING = "8em64t-2s2ca2c-buggynuma"
"""Its firmware assigns every CPU to all 8 nodes. hwloc drops all nodes except the first, together with their memory;
in pinner the other nodes have their memory and no CPU."""

MODULES = "64amd64-4s2n4ca2co"
"""Two cores of an AMD Bulldozer module share its front end and floating-point unit. For the kernel they are siblings,
for hwloc (by cpuinfo's family) separate cores. pinner uses the kernel's view, because the cores share resources."""


def by(topology: Topology, *fields: str) -> set[CpuSet]:
    groups = defaultdict(set)
    for cpu in topology.cpus:
        key = tuple(getattr(cpu, field) for field in fields)
        if None not in key:
            groups[key].add(cpu.id)
    return {CpuSet.of(group) for group in groups.values()}


@pytest.fixture(scope="module", params=CASES)
def machine(request):
    name = request.param
    root = root_of(name)
    return name, read_topology(root), Lstopo.of(root), root


def test_there_are_machines():
    for folder, archives in ARCHIVES.items():
        assert len(archives) >= (7 if folder == OWN else 15), folder


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
        # hwloc reports the nearest CPUs for a node without CPUs; in pinner the node has none.
        near = cpus(node)
        assert ours[id_].cpus == near or (
            not ours[id_].cpus and all(local <= near or not local & near for local in with_cpus)
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
    assert topology.core_count == len(cores)
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
        # The kernel reports package -1: hwloc takes the sets of core_siblings, without a number.
        assert set(packages.values()) == {None}
        packages = {package: str(number) for number, package in enumerate(sorted(packages, key=min))}
    ours = defaultdict(set)
    for cpu in topology.cpus:
        if cpu.online:
            ours[cpu.socket].add(cpu.id)
    assert {CpuSet.of(group): str(socket) for socket, group in ours.items()} == packages
    # hwloc reports dies only for a package with several.
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
            # hwloc places devices behind a host bridge at the bridge's location, which may be the whole machine.
            near = cpus(next(parent for parent in device.iterancestors("object") if "cpuset" in parent.attrib))
            assert near in (node_cpus[mine.node], topology.online)
    # hwloc leaves out a bridge without a bus behind it.
    left_out = {name for kind, name in ours if kind == "pci"} - {device.attrib["pci_busid"] for device in functions}
    assert all(ours["pci", name].description.startswith("0604 ") for name in left_out)
    for device in (device for device in lstopo.all("OSDev") if device.attrib["osdev_type"] == "2"):
        function = next(parent for parent in device.iterancestors("object") if parent.attrib["type"] == "PCIDev")
        mine = ours["net", device.attrib["name"]]
        assert mine.description == function.attrib["pci_busid"]
        assert mine.node == ours["pci", function.attrib["pci_busid"]].node


@pytest.mark.parametrize("scrub", [False, True])
def test_a_capture_of_a_captured_machine_is_the_same_machine(machine, tmp_path, scrub):
    _, topology, _, root = machine
    assert capture(root, tmp_path / "copy", scrub=scrub) > 10
    again = read_topology(tmp_path / "copy")
    assert again.cpus == topology.cpus
    assert again.nodes == topology.nodes
    assert again.l3_domains == topology.l3_domains
    if not scrub:
        assert again == topology
