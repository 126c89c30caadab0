"""Interrupts on guests' CPUs, where others than the host own free CPUs.

Right: they go to CPUs of the host alone.
"""

from dataclasses import replace

from support.hosts import KERNEL, cpus, guest, plain, process
from support.made_up.readings import Seen, irq, reading

from pinner.model.cpuset import CpuSet
from pinner.model.machine.interrupts import Balancer

SPDK = process(800, 100.0, "0", name="spdk_tgt", reasons=["restricted"], reserves="privileged")
POLLED = reading(
    Seen(irqs=(irq(40, "4", {4: 10}),)),
    guests=[guest(1, 2, cpus("2"), pins=["4", "5"])],
    top=plain(8),
    processes=(SPDK,),
)
"""spdk_tgt polls CPU 0."""
SHARED = reading(Seen(irqs=(irq(40, "12", {12: 10}),)), top=plain(16), shared=cpus("4-11"), dedicated=cpus("12-15"))
"""No guest uses cpu_shared_set yet."""
ARGUMENT = reading(
    top=plain(16, kernel=replace(KERNEL, command_line="irqaffinity=0-15")), shared=cpus("2-7"), dedicated=cpus("8-15")
)
EVERYWHERE = reading(
    guests=[guest(1, 4, cpus("0-3")), guest(2, 4, cpus("4-7"))],
    top=plain(8),
    irqbalance=(Balancer(700, "--foreground", None, banned_now=CpuSet()),),
)
"""Guests may run on each CPU.

Right: no line. Interrupts need a CPU.
"""


def busy(count: int):
    return Seen(irqs=tuple(irq(40 + cpu, str(cpu), {cpu: count}) for cpu in (1, 3, 9)))


BUSY = reading(
    busy(10),
    busy(4000),
    guests=[guest(1, 1, cpus("0-15"), pins=["0"]), guest(2, 2, cpus("0-15"))],
    top=plain(16, 2),
    processes=tuple(process(900 + n, 99.0, "7", name="ceph-osd", reasons=["restricted"]) for n in range(2)),
)
"""A plan has CPUs 1 and 9 for emulators and 3 for vCPUs, and a card interrupts each of them 2,000 times a second.

Right: no line takes emulators there, and no plan emulators or vCPUs.
"""
