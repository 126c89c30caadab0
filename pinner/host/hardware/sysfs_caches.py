"""Reads the caches of the CPUs from /sys/devices/system/cpu/cpu*/cache (ABI/testing/sysfs-devices-system-cpu)."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pinner.host.hardware import sysfs_cpus
from pinner.host.kernel.files import cpu_set, number, numbered, text
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Cache

_SIZE = re.compile(r"(\d{1,12})([KMG]?)", re.ASCII)
_KIB = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024**2}


def read_caches(root: Path) -> tuple[Cache, ...]:
    """The caches of level 2 and higher of the online CPUs, by level and lowest CPU; none where none is reported.

    They are read again only when other CPUs are online: a large machine has thousands of these files.
    """
    return _read(root, sysfs_cpus.online(root))


@lru_cache(maxsize=8)
def _read(root: Path, online: CpuSet) -> tuple[Cache, ...]:
    known: set[tuple[int, int]] = set()  # level and CPU
    found = []
    for cpu, folder in sysfs_cpus.present(root).items():
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
    """The level and folder of each cache of a CPU that holds data and is shared by a core or more."""
    for index in numbered(folder / "cache", "index").values():
        level = number(index / "level")
        if level is not None and level > 1 and text(index / "type") != "Instruction":
            yield level, index


def _size(content: str) -> int:
    found = _SIZE.fullmatch(content)
    return round(int(found[1]) * _KIB[found[2]]) if found else 0
