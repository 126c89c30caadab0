"""An 8-vCPU guest with strict memory on node 0, and a 10-vCPU guest that may run anywhere; each node has 12 CPUs for
vCPUs (4-15 and 20-31).

18 vCPUs do not fit node 0. Only the free guest, although it is larger and has its memory on node 0, can have node 1.
"""

from support.hosts import GIB, guest, plain, snapshot

from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding

TOP = plain(32, 2)
BOUND = guest(1, 8, TOP.online, memory={0: 2 * GIB}, numa=GuestNuma(memory=MemoryBinding("strict", (0,))))
FREE = guest(2, 10, TOP.online, memory={0: 2 * GIB})
HOST = snapshot(TOP, [BOUND, FREE])
RIGHT = {"g1": "4-15", "g2": "20-31"}
