"""titus-isolate's greedy allocator as a contender: its published rules for static workloads, written anew.

Read from: titus_isolate/allocate/greedy_cpu_allocator.py of Netflix-Skunkworks/titus-isolate. The unit tests compare
with the examples that its tests/isolate/test_cpu.py draws.

For a workload that needs n threads: choose the package with the most free threads (the first of equals). While the
workload needs more and the package has free threads, choose its core with the most free threads (the first of equals)
and take its free threads, at most as many as needed. Go on with the next package while threads are missing. A workload
that needs more threads than are free fails; it takes none here, as its caller keeps the machine of before.

A package is a socket. Nodes and caches are unknown to it.
"""

from collections.abc import Sequence

from benchmarks.peers.quality import Places

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology

Core = list[int]
"""The free threads of a core, ascending."""
Package = list[Core]


def packages(hardware: Topology, pool: CpuSet) -> list[Package]:
    """The packages of a topology with the free threads of each core."""
    found: dict[int | None, dict[int, Core]] = {}
    for cpu in hardware.cpus:
        cores = found.setdefault(cpu.socket, {})
        cores[min(cpu.siblings)] = list(cpu.siblings & pool)
    return [
        [cores[core] for core in sorted(cores)] for _, cores in sorted(found.items(), key=lambda each: str(each[0]))
    ]


def take(machine: list[Package], count: int) -> list[int] | None:
    """Take threads for one workload; None where fewer are free."""
    if count > sum(_free(package) for package in machine):
        return None
    taken: list[int] = []
    while len(taken) < count:
        package = max(machine, key=_free)
        while len(taken) < count and _free(package):
            core = max(package, key=len)
            wanted = count - len(taken)
            taken += core[:wanted]
            del core[:wanted]
    return taken


def place(hardware: Topology, pool: CpuSet, guests: Sequence[Guest]) -> Places:
    """Place the guests in this order, each as one static workload, on an empty host."""
    machine = packages(hardware, pool)
    return {guest.name: take(machine, len(guest.vcpus)) for guest in guests}


def _free(package: Package) -> int:
    return sum(map(len, package))
