"""A compute host of StarlingX: 20 cores of two threads, core c is CPUs c and c + 20, on node c modulo 2. The platform
has cores 0 and 2 of node 0 (CPUAffinity), cpu_shared_set one core of each node, and Nova dedicates all the others."""

from support.hosts import GIB, cpus, guest, interleaved, process, snapshot

PLATFORM, SHARED = cpus("0,2,20,22"), cpus("1,4,21,24")
_TOP = interleaved(20)

HOST = snapshot(
    _TOP,
    [guest(1, 2, cpus("4,24")), guest(2, 2, cpus("1,21"), memory={1: 2 * GIB})],
    [process(300, 40.0, "0,2,20,22")],
    dedicated=_TOP.online - PLATFORM - SHARED,
    shared=SHARED,
    baseline=PLATFORM,
)
# The host's work stays on the platform's CPUs: an eighth of node 0 is one core for each set, 0 and 2. Node 1 has the
# shared core alone, on which QEMU's own threads of its guest are beside the vCPUs.
HOUSEKEEPING, EMULATOR, VCPU = cpus("0,20"), cpus("1-2,21-22"), SHARED
