"""A guest of 4 vCPUs with <vcpu cpuset='4-7'> (virt-install --cpuset) on 2 nodes, each with 12 cores of two threads:
core c is CPUs c and c+24. Another guest has no restriction."""

from support.hosts import cpus, guest, process, snapshot, topology

INSIDE = cpus("4-7")

HOST = snapshot(
    topology({0: [[c, c + 24] for c in range(12)], 1: [[c, c + 24] for c in range(12, 24)]}),
    [guest(1, 4, INSIDE, restriction=INSIDE), guest(2, 8, cpus("0-47"), memory={1: 1 << 21})],
    [process(300, 40.0, "0-47")],
)

# An eighth of a node's 24 CPUs is one core for each role. The lowest cores that the restriction leaves are 0 and 1 of
# node 0, 12 and 13 of node 1. No CPU of the emulator set is inside, so that QEMU's own threads stay on 4-7, too.
HOUSEKEEPING, EMULATOR = cpus("0,12,24,36"), cpus("1,13,25,37")
