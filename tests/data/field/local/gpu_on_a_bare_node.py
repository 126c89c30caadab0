"""A GPU on a node without memory; the 16 GiB of its guest are on the next node.

Node 0 has 64 GiB and CPUs 0-15, node 1 has the GPU, no memory and CPUs 16-31. The objective counts remote memory
(tier 3: 16,384 MiB x 1 on node 1) before a remote device (tier 7: 1 on node 0). So the guest belongs on node 0.
"""

from support.hosts import GIB, guest, plain, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Device

TOP = plain(32, 2, memory_kib={0: 64 * GIB, 1: 0}, devices=(Device("pci", "0000:3b:00.0", 1),))
HOST = snapshot(TOP, [guest(1, 4, TOP.online, memory={0: 16 * GIB}, memory_kib=16 * GIB, pci=("0000:3b:00.0",))])
RIGHT = CpuSet.parse("4-15")
"""Node 0 without an eighth for housekeeping (0-1) and an eighth for emulators (2-3)."""
