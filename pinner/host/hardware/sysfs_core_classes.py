"""Reads which CPUs are on slower cores than others of the same machine: E cores, or those of a LITTLE cluster.

Sources, the first that tells CPUs apart:

1. cpuN/cpu_capacity (ABI/testing/sysfs-devices-system-cpu): Arm, and x86 since Linux 6.12.
2. /sys/devices/cpu_core/cpus and cpu_atom/cpus: the two kinds of Intel's hybrid CPUs, since Linux 5.13.
3. cpuN/cpufreq/base_frequency of intel_pstate, for cores that also have fewer hardware threads than the faster ones: a
   server with Speed Select has cores of several base frequencies, too, but they are of one kind.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from pinner.host.kernel.files import cpu_list, number
from pinner.model.cpuset import CpuSet

_SLOWER = (1078, 1024)
"""A capacity is lower if a step of 1078/1024 does not reach the next one: capacity_greater of kernel/sched/sched.h."""

_TRIED = 4
"""How many CPUs are tried for a file: the first ones may be offline, and an offline CPU has no frequency."""


def read_core_classes(root: Path, folders: Mapping[int, Path], siblings: Mapping[int, CpuSet]) -> Mapping[int, int]:
    """The class of each CPU: 0 for the fastest cores, 1 for the next slower ones; empty where all are of one class.

    ``folders`` has the folder of each CPU, ``siblings`` the hardware threads of its core.
    """
    return _by_value(_numbers(folders, "cpu_capacity")) or _by_unit(root, folders) or _by_frequency(folders, siblings)


def _numbers(folders: Mapping[int, Path], name: str) -> Mapping[int, int | None]:
    """A file of each CPU; empty where the first CPUs have none: a machine of thousands of CPUs is not searched."""
    first = any((folder / name).exists() for folder in list(folders.values())[:_TRIED])
    return {cpu: number(folder / name) for cpu, folder in folders.items()} if first else {}


def _by_value(values: Mapping[int, int | None]) -> Mapping[int, int]:
    """The classes of CPUs by a number that is larger for faster ones; unknown numbers count as the fastest."""
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
