"""Hosts whose kernel numbers no package (physical_package_id -1), and AMD modules. The masks are those of util-linux's
dumps of lscpu; the right number of packages is what lscpu and lstopo count: the different sets of core_siblings."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unnumbered:
    siblings: tuple[str, ...]
    """core_siblings of each package; CPUs that the host lacks are in some."""
    online: str
    packages: int


UNNUMBERED = {
    "ppc64-POWER7-64cpu": Unnumbered(tuple(f"{cpu}-{cpu + 3}" for cpu in range(0, 64, 4)), "0-63", 16),
    "ppc64-POWER7": Unnumbered(("0-3", "4-7", "8-11", "12-15"), "0-15", 4),
    "s390-kvm": Unnumbered(("0", "1", "2"), "0-2", 3),
    "s390-lpar": Unnumbered(("0-2", "3-5", "8-10", "11-14", "15", "16-18", "19"), "1-5,8-19", 7),
    "s390-zvm": Unnumbered(("0", "1", "2", "3"), "0-3", 4),
    "sparc64": Unnumbered(("6", "7", "10", "11", "14", "15"), "6-7,10-11,14-15", 6),
}

OPTERON_6272 = {cpu: (cpu // 16, cpu, f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}") for cpu in range(64)}
"""CPU: package, core_id, thread_siblings. Four packages of 16 cores; the kernel pairs the two cores of a module as
siblings, and numbers 64 cores: 64 cores in 32 modules."""
