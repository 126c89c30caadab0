"""The inventory of a lab host, compared with its topology file, numactl, lscpu and lstopo."""

import csv
import re
import subprocess
from collections import defaultdict

import pytest
from support.system.lab import inventory, pinner
from support.system.lstopo import OPTIONS, Lstopo, cpus

from pinner.host.hardware.sysfs import read_topology
from pinner.model.cpuset import CpuSet


@pytest.fixture(scope="session")
def found(name, lab_host):
    return inventory(lab_host(name)).topology


def groups(pairs):
    """The sets of CPUs with the same value."""
    by_value = defaultdict(set)
    for cpu, value in pairs:
        by_value[value].add(cpu)
    return {CpuSet.of(group) for group in by_value.values()}


def test_the_inventory_matches_the_topology_file(host, found):
    shape = host.topology
    assert [node.cpus for node in found.nodes] == [node.cpus for node in shape.nodes]
    assert [tuple(node.distances.values()) for node in found.nodes] == list(shape.distances)
    assert groups((cpu.id, (cpu.socket, cpu.core)) for cpu in found.cpus) == groups(
        (cpu, (position.socket, position.core)) for cpu, position in enumerate(shape.positions)
    )
    for node, wanted in zip(found.nodes, shape.nodes, strict=True):
        # The kernel reserves some memory for itself.
        assert 0.75 * wanted.memory_mib <= node.memory_kib / 1024 <= wanted.memory_mib
    argument = re.search(r"isolcpus=managed_irq,domain,(\S+)", host.machine.kernel_arguments)
    assert found.isolated == found.nohz_full == CpuSet.parse(argument[1] if argument else "")
    assert (found.kernel.cgroup, found.kernel.partitions) == ("v2", True)


@pytest.mark.fault(40)
def test_the_inventory_matches_numactl(host, found):
    output = host.run("numactl -H").out
    cpu_lists = dict(re.findall(r"^node (\d+) cpus: ?(.*)$", output, re.MULTILINE))
    sizes = dict(re.findall(r"^node (\d+) size: (\d+) MB$", output, re.MULTILINE))
    rows = re.findall(r"^ +\d+: +(.*)$", output, re.MULTILINE)
    assert {node.id: node.cpus for node in found.nodes} == {
        int(node): CpuSet.of(map(int, cpu_list.split())) for node, cpu_list in cpu_lists.items()
    }
    assert {node.id: node.memory_kib // 1024 for node in found.nodes} == {
        int(node): int(mb) for node, mb in sizes.items()
    }
    assert [[str(value) for value in node.distances.values()] for node in found.nodes] == [row.split() for row in rows]


def test_the_inventory_matches_lscpu(host, found):
    output = host.run("lscpu -p=CPU,CORE,SOCKET,NODE,CACHE,ONLINE").out
    lines = list(csv.reader(line for line in output.splitlines() if not line.startswith("#")))
    table = {int(cpu): rest for cpu, *rest in lines}
    assert {cpu.id: (str(cpu.socket), str(cpu.node)) for cpu in found.cpus} == {
        cpu: (socket, node) for cpu, (_, socket, node, *_) in table.items()
    }
    assert {cpu.siblings for cpu in found.cpus} == groups((cpu, core) for cpu, (core, *_) in table.items())
    assert set(found.l3_domains) == groups((cpu, caches.split(":")[-1]) for cpu, (*_, caches, _) in table.items())
    assert all(online == "Y" for *_, online in table.values())


def test_the_inventory_matches_lstopo(host, found):
    lstopo = Lstopo(host.run(f"lstopo {' '.join(OPTIONS)}").out.encode())
    assert {cpus(core): int(core.attrib["os_index"]) for core in lstopo.all("Core")} == {
        cpu.siblings: cpu.core for cpu in found.cpus
    }
    assert {cpus(package): int(package.attrib["os_index"]) for package in lstopo.all("Package")} == {
        next(iter(groups((c.id, c.socket) for c in found.cpus if c.socket == socket))): socket
        for socket in {cpu.socket for cpu in found.cpus}
    }
    assert lstopo.sets("L3Cache") == set(found.l3_domains)
    assert lstopo.distances() == {node.id: dict(node.distances) for node in found.nodes}
    memory = {int(node.attrib["os_index"]): int(node.get("local_memory", 0)) for node in lstopo.all("NUMANode")}
    assert memory == {node.id: node.memory_kib * 1024 for node in found.nodes}


def test_a_capture_has_the_same_topology(host, found, tmp_path):
    pinner(host, "capture", "/tmp/captured", "--scrub")
    (tmp_path / "machine.tar.gz").write_bytes(host.run("tar -cz -C /tmp captured && rm -r /tmp/captured").output)
    subprocess.run(["tar", "-xzf", tmp_path / "machine.tar.gz", "-C", tmp_path], check=True)
    captured = read_topology(tmp_path / "captured")
    assert (captured.cpus, captured.l3_domains) == (found.cpus, found.l3_domains)
    assert [(node.id, node.cpus, node.distances) for node in captured.nodes] == [
        (node.id, node.cpus, node.distances) for node in found.nodes
    ]
    assert Lstopo.of(tmp_path / "captured").sets("Core") == {cpu.siblings for cpu in found.cpus}
