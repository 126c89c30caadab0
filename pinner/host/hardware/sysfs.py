"""Reads a machine's topology below ``/``, or of a captured one (admin-guide/cputopology.rst,
ABI/testing/sysfs-devices-system-cpu, ABI/stable/sysfs-devices-node)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pinner.host.hardware.core_classes import PACKAGE_CPUS, read_clusters, read_core_classes
from pinner.host.kernel.files import cpu_list, cpu_set, decoded, first_cpu_set, names, number, numbered, text
from pinner.host.kernel.kernel import read_kernel
from pinner.host.kernel.partitions import partitioned
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.machine.topology import MAX_DISTANCE, Cache, Cpu, Device, HugePages, Node, Topology


def read_topology(root: Path) -> Topology:
    """A missing or malformed file is an unknown value. Raises Invalid where no CPU is found."""
    return replace(_topology(root, read_devices(root)), caches=read_caches(root))


def read_fingerprint(root: Path) -> str:
    return _topology(root, ()).fingerprint


def _topology(root: Path, devices: tuple[Device, ...]) -> Topology:
    nodes = read_nodes(root)
    domains = read_l3_domains(root)
    return Topology(
        cpus=read_cpus(root, nodes, domains, partitioned(root)),
        nodes=nodes,
        kernel=read_kernel(root),
        l3_domains=domains,
        devices=devices,
        clusters=read_clusters(root, present(root), online(root)),
    )


def read_devices(root: Path) -> tuple[Device, ...]:
    functions = root / "sys/bus/pci/devices"
    pci = (Device("pci", _name(path), number(path / "numa_node"), _pci_ids(path)) for path in _entries(functions))
    net = (_interface(path, functions) for path in _entries(root / "sys/class/net") if path.is_dir())
    return (*pci, *net)


def _interface(path: Path, functions: Path) -> Device:
    device = path / "device"
    if not device.exists():
        return Device("net", _name(path), None, "")
    # The device of a virtio or USB card is below its PCI function, and only the function has a node.
    behind = (device.resolve(), *device.resolve().parents)
    function = next((path_above for path_above in behind if (functions / path_above.name).is_symlink()), behind[0])
    return Device("net", _name(path), number(function / "numa_node"), _name(function))


def _entries(folder: Path) -> list[Path]:
    return sorted(folder / name for name in names(folder))


def _name(path: Path) -> str:
    return decoded(path.name)


def _pci_ids(device: Path) -> str:
    class_, vendor, model = ((text(device / name) or "").removeprefix("0x") for name in ("class", "vendor", "device"))
    return f"{class_[:4]} {vendor}:{model}" if class_ and vendor and model else ""


_NODES = Path("sys/devices/system/node")

_DISTANCE = re.compile(r"\d{1,3}", re.ASCII)
_HUGEPAGES = re.compile(r"hugepages-(\d{1,12})kB", re.ASCII)


def read_nodes(root: Path) -> tuple[Node, ...]:
    """Without NUMA the whole machine is node 0. Of overlapping nodes (broken firmware) the first has the CPU."""
    folders = numbered(root / _NODES, "node")
    if not folders:
        return (_whole_machine(root),)
    nodes = []
    unassigned = online(root)
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
    sentences = []
    for id_, folder in numbered(root / _NODES, "node").items():
        cpus = _listed(folder)
        duplicates = CpuSet.of(cpu for cpu in cpus if cpu in owner)
        if duplicates:
            others = sorted({owner[cpu] for cpu in duplicates})
            nodes = f"node{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
            sentences.append(
                f"node {id_} lists CPUs {duplicates} of {nodes}; pinner uses the first node that lists a CPU"
            )
        owner |= dict.fromkeys(cpus - duplicates, id_)
    return tuple(sentences)


def _whole_machine(root: Path) -> Node:
    total, free = _memory(root / "proc/meminfo")
    return Node(0, online(root), total, free, {}, _hugepages(root / "sys/kernel/mm/hugepages"))


def _listed(folder: Path) -> CpuSet:
    return cpu_set(folder, "cpulist", "cpumap") or CpuSet()


def _memory(meminfo: Path) -> tuple[int, int]:
    content = text(meminfo) or ""
    sizes = dict(re.findall(r"(MemTotal|MemFree):\s+(\d{1,18}) kB", content, re.ASCII))
    return int(sizes.get("MemTotal", 0)), int(sizes.get("MemFree", 0))


def _distances(folder: Path, nodes: tuple[int, ...]) -> Mapping[int, int]:
    values = (text(folder / "distance") or "").split()
    # The row has one value per online node and no ids. With another count the values cannot be assigned to nodes.
    if len(values) != len(nodes) or not all(
        _DISTANCE.fullmatch(value) and int(value) <= MAX_DISTANCE for value in values
    ):
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


_CPUS = Path("sys/devices/system/cpu")

_SIBLINGS = (("core_cpus_list", "core_cpus"), ("thread_siblings_list", "thread_siblings"))
"""The names since Linux 5.3, and those before."""


def present(root: Path) -> Mapping[int, Path]:
    """Raises Invalid where no CPU is found."""
    folders = numbered(root / _CPUS, "cpu")
    listed = cpu_list(root / _CPUS / "present") or CpuSet.of(folders)
    cpus = {cpu: folders[cpu] for cpu in listed if cpu in folders}
    if not cpus:
        raise Invalid("root", str(root), f"a folder that contains {_CPUS}/cpu0; this one contains no CPU")
    return cpus


def online(root: Path) -> CpuSet:
    cpus = present(root)
    listed = cpu_list(root / _CPUS / "online")
    if listed:
        return listed & CpuSet.of(cpus)
    return CpuSet.of(cpu for cpu, folder in cpus.items() if number(folder / "online") != 0)


def read_cpus(
    root: Path, nodes: Iterable[Node], l3_domains: tuple[CpuSet, ...], partitioned: CpuSet
) -> tuple[Cpu, ...]:
    """Node, socket and core of an offline CPU are unknown. ``partitioned`` CPUs count as isolated."""
    running, folders = online(root), present(root)
    siblings = {
        cpu: first_cpu_set(folder / "topology", _SIBLINGS) or CpuSet.of([cpu]) for cpu, folder in folders.items()
    }
    packages = read_packages(folders)
    classes = read_core_classes(root, folders, siblings, union(l3_domains))
    isolated = (cpu_list(root / _CPUS / "isolated") or CpuSet()) | partitioned
    nohz_full = cpu_list(root / _CPUS / "nohz_full") or CpuSet()
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    l3_of = {cpu: position for position, domain in enumerate(l3_domains) for cpu in domain}
    return tuple(
        Cpu(
            id=cpu,
            node=node_of.get(cpu),
            socket=packages.get(cpu),
            die=number(folder / "topology/die_id"),
            core=number(folder / "topology/core_id"),
            l3=l3_of.get(cpu),
            siblings=siblings[cpu],
            online=cpu in running,
            isolated=cpu in isolated,
            nohz_full=cpu in nohz_full,
            governor=text(folder / "cpufreq/scaling_governor"),
            core_class=classes.get(cpu, 0),
        )
        for cpu, folder in folders.items()
    )


def read_l3_domains(root: Path) -> tuple[CpuSet, ...]:
    """Online CPUs that share a level-3 cache, by lowest CPU."""
    running = online(root)
    domains: list[CpuSet] = []
    known = CpuSet()
    for cpu, folder in present(root).items():
        if cpu not in running or cpu in known:
            continue
        for index in numbered(folder / "cache", "index").values():
            if number(index / "level") != 3 or text(index / "type") == "Instruction":
                continue
            shared = cpu_set(index, "shared_cpu_list", "shared_cpu_map")
            if shared and cpu in shared:
                domains.append((shared & running) - known)
                known |= shared
    return tuple(domains)


def read_packages(folders: Mapping[int, Path]) -> Mapping[int, int]:
    """By CPU, as the kernel numbers them. Packages that have only sets of CPUs (POWER7, s390, SPARC: -1) are numbered
    by their lowest CPU, above the known numbers."""
    numbers = {cpu: number(folder / "topology/physical_package_id") for cpu, folder in folders.items()}
    known = {cpu: package for cpu, package in numbers.items() if package is not None}
    first = max(known.values(), default=-1) + 1
    unnumbered: dict[CpuSet, int] = {}
    for cpu in sorted(folders.keys() - known.keys()):
        if cpus := first_cpu_set(folders[cpu] / "topology", PACKAGE_CPUS):
            known[cpu] = unnumbered.setdefault(cpus, first + len(unnumbered))
    return known


_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.ASCII)
_KIB = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024**2}


def read_caches(root: Path) -> tuple[Cache, ...]:
    """Level 2 and higher. They are read again only when other CPUs are online: there may be thousands of files."""
    return _read_caches(root, online(root))


@lru_cache(maxsize=8)
def _read_caches(root: Path, online: CpuSet) -> tuple[Cache, ...]:
    known: set[tuple[int, int]] = set()  # level and CPU
    caches = []
    for cpu, folder in present(root).items():
        # CPUs that share a level-2 cache share all higher ones.
        for level, index in _caches_of(folder) if cpu in online and (2, cpu) not in known else ():
            if (level, cpu) in known:
                continue
            shared = cpu_set(index, "shared_cpu_list", "shared_cpu_map") or CpuSet.of([cpu])
            if cpu in shared:
                caches.append(Cache(level, _kib_of(text(index / "size") or ""), shared & online))
                known |= {(level, sharer) for sharer in shared}
    return tuple(sorted(caches, key=lambda cache: (cache.level, min(cache.cpus))))


def _caches_of(folder: Path) -> Iterator[tuple[int, Path]]:
    for index in numbered(folder / "cache", "index").values():
        level = number(index / "level")
        if level is not None and level > 1 and text(index / "type") != "Instruction":
            yield level, index


def _kib_of(content: str) -> int:
    match = _SIZE.fullmatch(content)
    return round(int(match[1]) * _KIB[match[2]]) if match else 0
