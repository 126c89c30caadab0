"""Machines whose cores differ. Each has the sets that are right with ``auto``: an eighth of the CPUs for each role, in
whole cores, of the slowest class first."""

from dataclasses import replace

from support.hosts import plain, topology, with_caches, with_classes

from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Cache

I9_13900K = with_classes(
    topology({0: [*([c, c + 1] for c in range(0, 16, 2)), *([c] for c in range(16, 32))]}), "0-15", "16-31"
)
"""Eight P cores of two threads, sixteen E cores. An eighth: 4 CPUs. Housekeeping 16-19, emulators 20-23, vCPUs 0-15 and
24-31. 12 vCPUs get P cores (0-15); 8 more get 24-31."""

CORE_ULTRA_185H = with_classes(
    topology({0: [*([c, c + 1] for c in range(0, 12, 2)), *([c] for c in range(12, 22))]}), "0-11", "12-19", "20-21"
)
"""Six P cores of two threads, eight E cores, two LP-E cores. An eighth: 2 CPUs. Housekeeping 20-21, emulators 12-13,
vCPUs 0-11 and 14-19. Where a guest runs on 20-21, it keeps them: housekeeping 12-13, emulators 14-15."""

RK3399 = with_classes(plain(6), "4-5", "0-3", clusters=("0-3", "4-5"))
"""Four little cores, two big ones. One core for each role: housekeeping 0, emulators 1, vCPUs 2-3 and 4-5. A vCPU is in
one of these. 2 vCPUs get 4-5, 2 more get 2-3; 6 vCPUs share one cluster."""

RK3588 = with_classes(plain(8), "4-7", "0-3", clusters=("0-3", "4-5", "6-7"))
"""Four little cores, two clusters of two big ones. Housekeeping 0, emulators 1, vCPUs 2-7. Of 4 vCPUs two get 4-5 and
two 6-7; 2 more get 2-3."""

RYZEN_7900X3D = replace(
    with_caches(topology({0: [[c, c + 12] for c in range(12)]}), "0-5,12-17", "6-11,18-23"),
    caches=tuple(Cache(3, mib * 1024, CpuSet.parse(cpus)) for mib, cpus in ((96, "0-5,12-17"), (32, "6-11,18-23"))),
)
"""Two dies of six cores with 96 and 32 MiB. An eighth is 3 CPUs, so one core: housekeeping 0,12, emulators 1,13.
A guest of 8 vCPUs gets 2-5,14-17 (96 MiB); of 12 gets 6-11,18-23; of 16 both dies."""
