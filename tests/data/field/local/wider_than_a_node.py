"""SNC4: four nodes of 8 CPUs, two to a socket, with 6 isolated CPUs each. A guest of 10 vCPUs fits no node; its memory
is on nodes 2 (6 GiB) and 3 (4 GiB).

Two nodes have CPUs enough. On nodes 2 and 3, six vCPUs of ten beside the 6 GiB, 4,096 MiB are at distance 12 of 6/10,
and 6,144 MiB of 4/10: 0.2 x (2,457.6 + 2,457.6) = 983 MiB x distance. On nodes 0 and 1 all 10,240 MiB are at distance
21: 11,264. The guest of 4 vCPUs with its memory on node 0 belongs there.
"""

from dataclasses import replace

from support.hosts import GIB, guest, plain, snapshot

ISOLATED = "2-7,10-15,18-23,26-31"
_FLAT = plain(32, 4, isolated=ISOLATED, nohz_full=ISOLATED)
TOP = replace(
    _FLAT,
    nodes=tuple(
        replace(node, distances={other: 12 if other // 2 == node.id // 2 else 21 for other in range(4)} | {node.id: 10})
        for node in _FLAT.nodes
    ),
)
WIDE = guest(2, 10, TOP.online - TOP.isolated, memory={2: 6 * GIB, 3: 4 * GIB}, memory_kib=10 * GIB)
BESIDE = guest(1, 4, TOP.online - TOP.isolated, memory={0: 6 * GIB}, memory_kib=6 * GIB)
ALONE = snapshot(TOP, [WIDE])
BOTH = snapshot(TOP, [BESIDE, WIDE])
NEAR_ITS_MEMORY = "18-23,26-29"
REMOTE = 983.04
"""MiB x distance beyond the local one."""
