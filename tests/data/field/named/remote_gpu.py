"""Two nodes, CPUs 0-7 and 8-15. The GPU of guest g1 is on node 1, its vCPUs are on CPUs 4-5 of node 0.

Right: node 1 for the guest, which no definition binds.
"""

from support.hosts import GIB, cpus, guest, plain, snapshot

from pinner.model.machine.topology import Device

GPU = "0000:3b:00.0"


def _host(pins: str, memory_kib: dict[int, int], **more: object):
    top = plain(16, 2, memory_kib=memory_kib, devices=(Device("pci", GPU, 1),))
    return snapshot(top, [guest(1, 2, cpus("0-15"), pins=[pins] * 2, pci=(GPU,), **{"memory": {1: 2 * GIB}} | more)])


BOTH = {0: 64 * GIB, 1: 64 * GIB}
HOST = _host("4-5", BOTH)
NEAR = _host("8-9", BOTH)
FAR_MEMORY = _host("4-5", BOTH, memory={0: 2 * GIB})
"""Its memory is on node 0 and counts before the device: no plan moves the guest to node 1."""
FLOATING = _host("0-15", BOTH)
"""It may run on node 1: no placement is wrong."""
NO_MEMORY = _host("4-5", {0: 64 * GIB, 1: 0})
"""Node 1 has no memory: node 0 is as good."""
DEDICATED = _host("4-5", BOTH, dedicated=True)
"""Nova pinned it: only its flavor can change that."""
