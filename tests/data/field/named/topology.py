"""Core n of the host has the CPUs n and n + 8; nodes are n modulo 2. A guest sees cores of two threads: its vCPUs 0 and
1 are one core, 2 and 3 the next.

Right: the vCPUs of a guest's core on the two CPUs of one core of the host.
"""

from support.hosts import GIB, cpus, guest, interleaved, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, GuestTopology


def _host(pins: list[str], topology: GuestTopology | None = None, cells: tuple[GuestCell, ...] = ()):
    return snapshot(
        interleaved(8), [guest(1, len(pins), cpus("0"), pins=pins, topology=topology, numa=GuestNuma(cells))]
    )


APART = _host(["2", "4", "10", "12"], GuestTopology(1, 2, 2))
"""vCPUs 0 and 1 are on the cores 2 and 4, and so are 2 and 3: neither core of the guest is one of the host."""
TOGETHER = _host(["2", "10", "4", "12"], GuestTopology(1, 4, 1))
"""The guest sees four cores, and has two. Right: <topology threads='2'/>."""
ALIKE = _host(["2", "10", "4", "12"], GuestTopology(1, 2, 2))
ALONE = _host(["2", "4", "6"], GuestTopology(3, 1, 1))
UNKNOWN = _host(["2", "10", "4", "12"])
"""Without <topology>, nothing is known."""
SOCKETS = _host(["2", "3", "4", "5"], GuestTopology(2, 2, 1))
"""Both sockets of the guest have a vCPU on each node. Right: 2,4 for one socket, 3,5 for the other."""
CELLS = (GuestCell(0, CpuSet.of([0, 1]), GIB), GuestCell(1, CpuSet.of([2, 3]), GIB))
CROSSED = _host(["2", "3", "4", "5"], cells=CELLS)
STRAIGHT = _host(["2", "4", "3", "5"], cells=CELLS)
