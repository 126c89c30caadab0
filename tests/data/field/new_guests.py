"""Hosts on which two guests start at once. Each node has two CPUs: one of housekeeping, and one that vCPUs and QEMU's
threads share. So the sets are 0,2 and 1,3."""

from dataclasses import dataclass

from support.hosts import GIB, cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import Guest
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot

ON_0 = {0: 2 * GIB}


@dataclass(frozen=True)
class NewGuests:
    request: Request
    start: Snapshot
    """Before the first plan."""
    second: Guest
    third: Guest


CROWDED = NewGuests(
    Request(strategy="shared-pool"),
    snapshot(plain(4, 2), [guest(1, 1, cpus("3"), iothreads=1, memory=ON_0)], [process(500, 10.0, "0-3")]),
    guest(2, 1, cpus("3"), memory=ON_0),
    guest(3, 3, cpus("2-3"), iothreads=1, memory=ON_0),
)
"""Each guest's place is 1,3. The first one is there, with half of its vCPU and of its two threads on each CPU. Terms of
tier 6, where the daemon is on 0,2:

as it is: CPU 1 has 0.5 vCPUs and 1 thread; CPU 2 has 1.5, 1 and 0.05 of the daemon; CPU 3 has 3 and 3
    vcpu_vs_host 0.05, vcpu_vs_emulator 0.5 + 1 + 3 = 4.5, emulator_vs_host 0.05, overcommit 0.5 + 2 = 2.5: 7.1
g3 on 1,3: CPU 1 has 2 vCPUs and 2 threads; CPU 3 has 3 and 3
    vcpu_vs_emulator 2 + 3 = 5, overcommit 1 + 2 = 3: 8.0, of which 0.5 of overcommit is excused (CPU 2 is given up)
g2 on 1,3: CPU 1 has 1 vCPU and 1.5 threads; CPU 2 as before; CPU 3 has 2.5 and 2.5
    vcpu_vs_host 0.05, vcpu_vs_emulator 1.5 + 1 + 2.5 = 5, emulator_vs_host 0.05, overcommit 0.5 + 1.5 = 2: 7.1
both: CPU 1 and CPU 3 have 2.5 vCPUs and 2.5 threads each
    vcpu_vs_emulator 2.5 + 2.5 = 5, overcommit 3: 8.0, and from g2's place on, all of the rise is excused

So g3 is left alone while g2 stays as it is, and gets its place after g2."""

FULL = NewGuests(
    Request(strategy="numa-local"),
    snapshot(plain(4, 2), [guest(1, 1, cpus("1-2"), iothreads=1, memory={1: 2 * GIB})], [process(500, 90.0, "0-3")]),
    guest(2, 1, cpus("2-3"), iothreads=3, memory=ON_0),
    guest(3, 1, cpus("2-3"), memory=ON_0),
)
"""The place of g2 and of g3 is CPU 1. The first guest is on CPU 3, with its two threads. The daemon has 0.45 on CPU 0
and on CPU 2. Terms of tier 6:

as it is: CPU 2 has 1 vCPU and 2.5 threads, CPU 3 has 2 and 4.5
    vcpu_vs_host 0.45, vcpu_vs_emulator 2.5 + 4.5 = 7, emulator_vs_host 0.45, overcommit 1: 8.9
g2 on CPU 1: CPU 1 has 1 vCPU and 4 threads, CPU 2 has 0.5 and 0.5, CPU 3 has 1.5 and 2.5
    vcpu_vs_host 0.225, vcpu_vs_emulator 4 + 0.25 + 2.5 = 6.75, emulator_vs_host 0.225, overcommit 0.5: 7.7
g3 on CPU 1: CPU 1 has 1 vCPU and 1 thread, CPU 2 has 0.5 and 2, CPU 3 has 1.5 and 4
    vcpu_vs_host 0.225, vcpu_vs_emulator 1 + 1 + 4 = 6, emulator_vs_host 0.45, overcommit 0.5: 7.175
both: CPU 1 has 2 vCPUs and 5 threads, CPU 3 has 1 and 2
    vcpu_vs_emulator 5 + 2 = 7, overcommit 1: 8.0, of which at most 0.5 of overcommit is excused

So the place of g2 is worse only beside g3 on CPU 1. While g3 backs off, g2 gets its place."""
