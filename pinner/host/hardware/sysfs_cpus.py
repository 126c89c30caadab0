"""CPUs, their classes and caches from /sys/devices/system/cpu (admin-guide/cputopology.rst,
ABI/testing/sysfs-devices-system-cpu)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from pinner.host.kernel.files import cpu_list, cpu_set, number, numbered, text
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.topology import Cache, Cpu, Node

FOLDER = Path("sys/devices/system/cpu")

_SIBLINGS = (("core_cpus_list", "core_cpus"), ("thread_siblings_list", "thread_siblings"))
"""Names since Linux 5.3 and before."""


def present(root: Path) -> Mapping[int, Path]:
    """Raises Invalid where none is found."""
    folders = numbered(root / FOLDER, "cpu")
    listed = cpu_list(root / FOLDER / "present") or CpuSet.of(folders)
    cpus = {cpu: folders[cpu] for cpu in listed if cpu in folders}
    if not cpus:
        raise Invalid("root", str(root), f"a folder that contains {FOLDER}/cpu0; this one contains no CPU")
    return cpus


def online(root: Path) -> CpuSet:
    """Raises Invalid where none is found."""
    cpus = present(root)
    listed = cpu_list(root / FOLDER / "online")
    if listed:
        return listed & CpuSet.of(cpus)
    return CpuSet.of(cpu for cpu, folder in cpus.items() if number(folder / "online") != 0)


def read_cpus(
    root: Path, nodes: Iterable[Node], l3_domains: tuple[CpuSet, ...], partitioned: CpuSet
) -> tuple[Cpu, ...]:
    """By ascending id. Node, socket and core of an offline CPU are unknown. ``partitioned`` CPUs count as isolated."""
    running, folders = online(root), present(root)
    siblings = {cpu: _siblings(folder / "topology", cpu) for cpu, folder in folders.items()}
    classes = read_core_classes(root, folders, siblings)
    isolated = (cpu_list(root / FOLDER / "isolated") or CpuSet()) | partitioned
    nohz_full = cpu_list(root / FOLDER / "nohz_full") or CpuSet()
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    l3_of = {cpu: position for position, domain in enumerate(l3_domains) for cpu in domain}
    return tuple(
        Cpu(
            id=cpu,
            node=node_of.get(cpu),
            socket=number(folder / "topology/physical_package_id"),
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


def _siblings(topology: Path, cpu: int) -> CpuSet:
    for list_name, mask_name in _SIBLINGS:
        if siblings := cpu_set(topology, list_name, mask_name):
            return siblings
    return CpuSet.of([cpu])


_SLOWER = (1078, 1024)
"""capacity_greater of kernel/sched/sched.h."""

_TRIED = 4
"""CPUs that are tried: an offline one has no frequency."""


def read_core_classes(root: Path, folders: Mapping[int, Path], siblings: Mapping[int, CpuSet]) -> Mapping[int, int]:
    """0 for the fastest cores, 1 for the next; empty where all are of one class."""
    return _by_value(_numbers(folders, "cpu_capacity")) or _by_unit(root, folders) or _by_frequency(folders, siblings)


def _numbers(folders: Mapping[int, Path], name: str) -> Mapping[int, int | None]:
    """Empty where the first CPUs have none: thousands are not searched."""
    first = any((folder / name).exists() for folder in list(folders.values())[:_TRIED])
    return {cpu: number(folder / name) for cpu, folder in folders.items()} if first else {}


def _by_value(values: Mapping[int, int | None]) -> Mapping[int, int]:
    """Larger is faster; unknown counts as the fastest."""
    distinct = sorted({value for value in values.values() if value}, reverse=True)
    rank = dict.fromkeys(distinct[:1], 0)
    for faster, slower in pairwise(distinct):
        rank[slower] = rank[faster] + (slower * _SLOWER[0] < faster * _SLOWER[1])
    found = {cpu: rank[value] if value else 0 for cpu, value in values.items()}
    return found if any(found.values()) else {}


def _by_unit(root: Path, folders: Mapping[int, Path]) -> Mapping[int, int]:
    fast, slow = (cpu_list(root / f"sys/devices/{unit}/cpus") or CpuSet() for unit in ("cpu_core", "cpu_atom"))
    return {cpu: int(cpu in slow) for cpu in folders} if fast and slow - fast else {}


def _by_frequency(folders: Mapping[int, Path], siblings: Mapping[int, CpuSet]) -> Mapping[int, int]:
    found = _by_value(_numbers(folders, "cpufreq/base_frequency"))
    fewest = min((len(siblings[cpu]) for cpu, rank in found.items() if not rank), default=0)
    alike = any(len(siblings[cpu]) >= fewest for cpu, rank in found.items() if rank)
    return {} if alike else found


_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.ASCII)
_KIB = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024**2}


def read_caches(root: Path) -> tuple[Cache, ...]:
    """Level 2 and higher, by level and lowest CPU. Read again only when other CPUs are online: there may be thousands
    of files."""
    return _read(root, online(root))


@lru_cache(maxsize=8)
def _read(root: Path, online: CpuSet) -> tuple[Cache, ...]:
    known: set[tuple[int, int]] = set()  # level and CPU
    found = []
    for cpu, folder in present(root).items():
        # CPUs that share a level-2 cache share all higher ones.
        for level, index in _of_cpu(folder) if cpu in online and (2, cpu) not in known else ():
            if (level, cpu) in known:
                continue
            shared = cpu_set(index, "shared_cpu_list", "shared_cpu_map") or CpuSet.of([cpu])
            if cpu in shared:
                found.append(Cache(level, _size(text(index / "size") or ""), shared & online))
                known |= {(level, each) for each in shared}
    return tuple(sorted(found, key=lambda cache: (cache.level, min(cache.cpus))))


def _of_cpu(folder: Path) -> Iterator[tuple[int, Path]]:
    """Caches that hold data and are shared by a core or more."""
    for index in numbered(folder / "cache", "index").values():
        level = number(index / "level")
        if level is not None and level > 1 and text(index / "type") != "Instruction":
            yield level, index


def _size(content: str) -> int:
    found = _SIZE.fullmatch(content)
    return round(int(found[1]) * _KIB[found[2]]) if found else 0
