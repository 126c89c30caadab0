"""Guests that float over a cpu_shared_set with CPUs of all nodes. Nova divides the vCPUs and the MiB of a flavor evenly
over hw:numa_nodes cells, and refuses it (ImageNUMATopologyAsymmetric) where that leaves a rest.

Two sockets as eight nodes (SNC4) of 28 CPUs, of which Nova has 24 each, and 64 GiB. Nodes of 24 CPUs hold guests of 2
and 3 vCPUs: one cell. 40 vCPUs need two cells of 20. 25 need five cells of 5, the least divisor that fits; of its
10,240 MiB each cell has 2,048. 4 vCPUs with 96 GiB need two cells, because of the memory. 29 vCPUs have no divisor.
"""

from dataclasses import replace

from support.hosts import GIB, cpus, guest, plain, snapshot, topology

from pinner.model.guest.guest import NovaIdentity

SHARED = cpus(
    "2-13,16-27,30-41,44-55,58-69,72-83,86-97,100-111,114-125,128-139,142-153,156-167,170-181,184-195,198-209,212-223"
)
_NOVA = NovaIdentity("i-1", "p-1", "u-1", "m1.small")
_TOP = topology({node: [[cpu, cpu + 112] for cpu in range(14 * node, 14 * node + 14)] for node in range(8)})
_SIZES = ((1, 2, 2), (2, 3, 2), (3, 40, 80), (4, 25, 10), (5, 4, 96), (6, 29, 8))
EIGHT_NODES = snapshot(
    _TOP,
    [replace(guest(number, vcpus, SHARED, memory_kib=gib * GIB), nova=_NOVA) for number, vcpus, gib in _SIZES],
    shared=SHARED,
)
RIGHT = {"g1": 1, "g2": 1, "g3": 2, "g4": 5, "g5": 2, "g6": None}
"""hw:numa_nodes; None: no line."""

_OF_TWO = cpus("2-15,18-31")
TWO_NODES = snapshot(plain(32, 2), [replace(guest(1, 3, _OF_TWO), nova=_NOVA)], shared=_OF_TWO)
