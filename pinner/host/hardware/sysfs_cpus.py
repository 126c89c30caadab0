"""Reads the CPUs from /sys/devices/system/cpu.

Source: the kernel's Documentation/admin-guide/cputopology.rst and ABI/testing/sysfs-devices-system-cpu.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pinner.host.hardware.sysfs_core_classes import read_core_classes
from pinner.host.kernel.files import cpu_list, cpu_set, number, numbered, text
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.topology import Cpu, Node

FOLDER = Path("sys/devices/system/cpu")

_SIBLINGS = (("core_cpus_list", "core_cpus"), ("thread_siblings_list", "thread_siblings"))
"""The same set under its names since Linux 5.3 and before."""


def present(root: Path) -> Mapping[int, Path]:
    """Every present CPU with its folder. Raises Invalid where none is found below ``root``."""
    folders = numbered(root / FOLDER, "cpu")
    listed = cpu_list(root / FOLDER / "present") or CpuSet.of(folders)
    cpus = {cpu: folders[cpu] for cpu in listed if cpu in folders}
    if not cpus:
        raise Invalid("root", str(root), f"a folder that contains {FOLDER}/cpu0; this one contains no CPU")
    return cpus


def online(root: Path) -> CpuSet:
    """The present CPUs that are online. Raises Invalid where none is found below ``root``."""
    cpus = present(root)
    listed = cpu_list(root / FOLDER / "online")
    if listed:
        return listed & CpuSet.of(cpus)
    return CpuSet.of(cpu for cpu, folder in cpus.items() if number(folder / "online") != 0)


def read_cpus(
    root: Path, nodes: Iterable[Node], l3_domains: tuple[CpuSet, ...], partitioned: CpuSet
) -> tuple[Cpu, ...]:
    """Every present CPU by ascending id. The kernel does not report node, socket or core of an offline CPU.

    ``partitioned`` are the CPUs of isolated cpuset partitions; they count as isolated, like those of ``isolcpus``.
    """
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
    """The sets of online CPUs that share a level-3 cache, by lowest CPU; none where the kernel reports no level 3."""
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
