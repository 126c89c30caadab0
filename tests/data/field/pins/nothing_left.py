"""A guest with strict memory on node 1 and <vcpu cpuset='4-7'> of node 0, and one with <vcpu cpuset='4-7'> in a slice
with AllowedCPUs=8-15: no CPU is in both sets."""

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding
from pinner.model.machine.process import CpuLimit

STRICT = GuestNuma(memory=MemoryBinding("strict", (1,)))
HOST = snapshot(
    plain(32, nodes=2),
    [guest(1, 2, cpus("4-7"), restriction=cpus("4-7"), numa=STRICT, memory={1: 1 << 21}), guest(2, 2, cpus("0-31"))],
)

# g1 stays as it is, and g2 is placed. Housekeeping is 0-1,16-17, emulators 2-3,18-19.
WHY = (
    "the guest has strict memory on node 1 and CPUs 4-7 from its definition (<vcpu cpuset>), where the vCPU set "
    "(4-15,20-31) has no CPU"
)

SLICE = CpuLimit("/machine.slice", cpus("8-15"))
IN_A_SLICE = snapshot(
    plain(32), [guest(1, 2, cpus("8-15"), restriction=cpus("4-7"), cpu_limits=(SLICE,)), guest(2, 2, cpus("0-31"))]
)

# The reason has the restriction, the slice and the pool.
WHY_IN_A_SLICE = (
    "the guest has CPUs 4-7 from its definition (<vcpu cpuset>) and CPUs 8-15 from cgroup /machine.slice, where the "
    "vCPU "
)
