"""isolcpus=managed_irq,4-15 isolates no CPU from the scheduler, nohz_full has 12-15 of them, and guests float on 4-11.

Right: nohz_full goes. The flag domain would isolate the CPUs on which guests float.
"""

from dataclasses import replace

from support.hosts import KERNEL, cpus, guest, plain, snapshot

LINE = "isolcpus=managed_irq,4-15 nohz_full=12-15"
TOP = plain(16, nohz_full="12-15", kernel=replace(KERNEL, command_line=LINE))
FLOATING = snapshot(TOP, [guest(1, 4, cpus("4-11"))])
SHARED = snapshot(TOP, shared=cpus("4-11"))
