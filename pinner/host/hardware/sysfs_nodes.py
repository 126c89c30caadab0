"""Reads the NUMA nodes from /sys/devices/system/node (ABI/stable/sysfs-devices-node)."""

import re
from collections.abc import Mapping
from pathlib import Path

from pinner.host.hardware import sysfs_cpus
from pinner.host.kernel.files import cpu_set, names, number, numbered, text
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import HugePages, Node

FOLDER = Path("sys/devices/system/node")

_HUGEPAGES = re.compile(r"hugepages-(\d{1,12})kB", re.ASCII)


def read_nodes(root: Path) -> tuple[Node, ...]:
    """By ascending id. Without NUMA the whole machine is node 0. Of overlapping nodes (broken firmware) the first has
    the CPU; see ``overlaps``."""
    folders = numbered(root / FOLDER, "node")
    if not folders:
        return (_whole_machine(root),)
    nodes = []
    unassigned = sysfs_cpus.online(root)
    for id_, folder in folders.items():
        cpus = _listed(folder) & unassigned
        unassigned -= cpus
        total, free = _memory(folder / "meminfo")
        distances = _distances(folder, tuple(folders))
        nodes.append(Node(id_, cpus, total, free, distances, _hugepages(folder / "hugepages")))
    return tuple(nodes)


def overlaps(root: Path) -> tuple[str, ...]:
    """A sentence for each node that lists CPUs of an earlier one."""
    owner: dict[int, int] = {}
    found = []
    for id_, folder in numbered(root / FOLDER, "node").items():
        cpus = _listed(folder)
        duplicates = CpuSet.of(cpu for cpu in cpus if cpu in owner)
        if duplicates:
            others = sorted({owner[cpu] for cpu in duplicates})
            nodes = f"node{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
            found.append(f"node {id_} lists CPUs {duplicates} of {nodes}; pinner uses the first node that lists a CPU")
        owner |= dict.fromkeys(cpus - duplicates, id_)
    return tuple(found)


def _whole_machine(root: Path) -> Node:
    total, free = _memory(root / "proc/meminfo")
    return Node(0, sysfs_cpus.online(root), total, free, {}, _hugepages(root / "sys/kernel/mm/hugepages"))


def _listed(folder: Path) -> CpuSet:
    return cpu_set(folder, "cpulist", "cpumap") or CpuSet()


def _memory(meminfo: Path) -> tuple[int, int]:
    """Total and free KiB; 0: not reported."""
    content = text(meminfo) or ""
    found = dict(re.findall(r"(MemTotal|MemFree):\s+(\d{1,18}) kB", content, re.ASCII))
    return int(found.get("MemTotal", 0)), int(found.get("MemFree", 0))


def _distances(folder: Path, nodes: tuple[int, ...]) -> Mapping[int, int]:
    values = (text(folder / "distance") or "").split()
    # The row has one value per online node and no ids. With another count the values cannot be assigned to nodes.
    if len(values) != len(nodes) or not all(value.isdecimal() for value in values):
        return {}
    return dict(zip(nodes, map(int, values), strict=True))


def _hugepages(folder: Path) -> tuple[HugePages, ...]:
    sizes = [int(match[1]) for name in names(folder) if (match := _HUGEPAGES.fullmatch(name))]
    pages = []
    for size in sorted(sizes):
        of_size = folder / f"hugepages-{size}kB"
        total, free = number(of_size / "nr_hugepages"), number(of_size / "free_hugepages")
        if total is not None and free is not None:
            pages.append(HugePages(size, total, free))
    return tuple(pages)
