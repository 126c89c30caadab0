"""Which cores are slower: Intel's units of P, E and LP-E cores, a step in capacity, or the base frequency."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pinner.host.kernel.files import cpu_list, cpu_set, first_cpu_set, number
from pinner.model.cpuset import CpuSet, union

PACKAGE_CPUS = (("package_cpus_list", "package_cpus"), ("core_siblings_list", "core_siblings"))
"""The names since Linux 5.3, and those before."""

_UNITS = ("cpu_core", "cpu_atom", "cpu_lowpower")
"""Intel's hybrid PMUs in sysfs, the fastest cores first (arch/x86/events/intel/core.c)."""

_STEP = (5, 4)
"""A step of more than a fifth begins a class. A favoured core of 5.8 GHz beside 5.5 (capacities 1024, 971) does not."""

_TRIED = 4
"""An offline CPU has no frequency."""


def read_core_classes(
    root: Path, folders: Mapping[int, Path], siblings: Mapping[int, CpuSet], with_l3: CpuSet
) -> Mapping[int, int]:
    units, capacities = _units(root, CpuSet.of(folders)), _numbers(folders, "cpu_capacity")
    steps = [(rank, step) for rank, unit in enumerate(units) for step in _steps(unit, capacities)]
    classes = [part for rank, step in steps for part in (_by_l3(step, with_l3) if rank else [step])]
    return _numbered(classes) or _by_frequency(folders, siblings)


def read_clusters(root: Path, folders: Mapping[int, Path], online: CpuSet) -> tuple[CpuSet, ...]:
    """The clusters of Arm big.LITTLE, by lowest CPU; empty elsewhere. Before Linux 6.0 a cluster was a package."""
    capacities = _numbers(folders, "cpu_capacity")
    classes = _steps(online, capacities)
    if len(classes) < 2 or len(_units(root, online)) > 1:
        return ()
    clusters = {part for each in classes for cpu in each if (part := _cluster(folders[cpu], online) & each)}
    return tuple(sorted(clusters, key=min))


def contradictions(root: Path, folders: Mapping[int, Path]) -> tuple[str, ...]:
    """A sentence where capacities order the units otherwise."""
    units, capacities = _units(root, CpuSet.of(folders)), _numbers(folders, "cpu_capacity")
    return tuple(_contradictions(units, capacities))


def _contradictions(units: tuple[CpuSet, ...], capacities: Mapping[int, int | None]) -> Iterator[str]:
    for slower, name in zip(units[1:], _UNITS[1:], strict=False):
        low = min((capacity for cpu in units[0] if (capacity := capacities.get(cpu))), default=0)
        if above := CpuSet.of(cpu for cpu in slower if low and (capacities.get(cpu) or 0) > low):
            below = CpuSet.of(cpu for cpu in units[0] if capacities.get(cpu) == low)
            yield (
                f"cpu_capacity contradicts {_UNITS[0]} and {name}: CPUs {above} of {name} have up to "
                f"{max(capacities[cpu] or 0 for cpu in above)}, CPUs {below} of {_UNITS[0]} have {low}; pinner takes "
                f"those of {_UNITS[0]} for the faster ones"
            )


def _units(root: Path, cpus: CpuSet) -> tuple[CpuSet, ...]:
    """All in one where the kernel lists no P cores. An unlisted (offline) CPU counts as a P core."""
    listed = [cpus & (cpu_list(root / f"sys/devices/{unit}/cpus") or CpuSet()) for unit in _UNITS]
    slower = [unit - listed[0] for unit in listed[1:]] if listed[0] else []
    return tuple(unit for unit in (cpus - union(slower), *slower) if unit)


def _numbers(folders: Mapping[int, Path], name: str) -> Mapping[int, int | None]:
    first = any((folder / name).exists() for folder in list(folders.values())[:_TRIED])
    return {cpu: number(folder / name) for cpu, folder in folders.items()} if first else {}


def _steps(cpus: CpuSet, values: Mapping[int, int | None]) -> list[CpuSet]:
    """Larger is faster; unknown counts as the fastest."""
    most = max((values.get(cpu) or 0 for cpu in cpus), default=0)
    classes: list[list[int]] = []
    before = 0
    for value, cpu in sorted(((values.get(cpu) or most, cpu) for cpu in cpus), reverse=True):
        if not classes or value * _STEP[0] < before * _STEP[1]:
            classes.append([])
        classes[-1].append(cpu)
        before = value
    return [CpuSet.of(each) for each in classes]


def _by_l3(cpus: CpuSet, with_l3: CpuSet) -> list[CpuSet]:
    """LP-E cores lack the level-3 cache of the others."""
    return [part for part in (cpus & with_l3, cpus - with_l3) if part]


def _cluster(folder: Path, online: CpuSet) -> CpuSet:
    cluster = cpu_set(folder / "topology", "cluster_cpus_list", "cluster_cpus")
    if cluster and len(cluster) > 1:  # an unknown cluster has its CPU alone
        return cluster
    return first_cpu_set(folder / "topology", PACKAGE_CPUS) or online


def _by_frequency(folders: Mapping[int, Path], siblings: Mapping[int, CpuSet]) -> Mapping[int, int]:
    """Slower cores have fewer threads: Speed Select makes alike cores differ."""
    fastest, *slower = _steps(CpuSet.of(folders), _numbers(folders, "cpufreq/base_frequency"))
    fewest = min(len(siblings[cpu]) for cpu in fastest)
    alike = any(len(siblings[cpu]) >= fewest for cpu in union(slower))
    return {} if alike else _numbered([fastest, *slower])


def _numbered(classes: list[CpuSet]) -> Mapping[int, int]:
    return {cpu: rank for rank, cpus in enumerate(classes) for cpu in cpus} if len(classes) > 1 else {}
