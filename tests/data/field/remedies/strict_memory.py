"""A firewall has 32 vCPUs one to one on 5,7,…,35 and their siblings (72 CPUs, c and c+36 are a core; odd CPUs are of
node 1), its memory is on node 1 only, and an operator pinned its emulator to the vCPUs' CPUs.

Right: the emulator's line names only CPUs of node 1.
"""

from support.hosts import GIB, cpus, guest, interleaved, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import OperatorPin
from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding

ORDER = [cpu for core in range(5, 36, 2) for cpu in (core, core + 36)]
EVERY = CpuSet.of(ORDER)
PINS = (
    *(OperatorPin("vcpu", vcpu, CpuSet.one(cpu), "definition") for vcpu, cpu in enumerate(ORDER)),
    OperatorPin("emulator", None, EVERY, "definition"),
)
FIREWALL = guest(
    1,
    32,
    EVERY,
    pins=[str(cpu) for cpu in ORDER],
    operator_pins=PINS,
    memory={1: 32 * GIB},
    memory_kib=32 * GIB,
    numa=GuestNuma(memory=MemoryBinding("strict", (1,))),
)
HOST = snapshot(
    interleaved(36),
    [FIREWALL, guest(2, 4, cpus("0-71"), memory={1: 2 * GIB}), guest(3, 8, cpus("0-71"), memory={0: 2 * GIB})],
    [process(300, 90.0, "0-71", name="ovs-vswitchd")],
)
