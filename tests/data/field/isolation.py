"""Hosts that isolate CPUs for others already: Open vSwitch's polling threads and Nova's pinned guests; a real-time
guest. Advice for more isolation keeps all of that.
"""

from dataclasses import replace

from support.hosts import KERNEL, cpus, guest, interleaved, plain, snapshot

from pinner.model.snapshot import OvsDpdk, OvsMasks

BOOT = "ro quiet isolcpus=4-23,28-47"
PMDS, DEDICATED, SHARED = "4-5,28-29", "6-23,30-47", "0-3,24-27"

NOVA = snapshot(
    interleaved(24, isolated="4-23,28-47", kernel=replace(KERNEL, command_line=BOOT)),
    [guest(1, 2, cpus(SHARED))],
    dedicated=cpus(DEDICATED),
    ovs=OvsDpdk(OvsMasks(cpus(PMDS))),
)
"""48 CPUs: core c and c + 24, on node c modulo 2. Housekeeping gets core 0 of node 0 and core 1 of node 1 (0-1,24-25);
emulators join it, because vCPUs need the other cores. Right: the CPUs wanted are 2-3,26-27, and the arguments have
2-23,26-47, isolcpus without flags as now."""
NOVA_WANTED, NOVA_LIST = "2-3,26-27", "2-23,26-47"

NOVA_SHARED = replace(NOVA, shared=cpus(SHARED))
"""Right: no advice, because floating guests need cpu_shared_set balanced, and no other CPU is left."""


def _realtime(vcpus: int):
    fast = guest(1, vcpus, cpus("0-7"), pins=[str(cpu) for cpu in range(8, 8 + vcpus)], dedicated=True)
    threads = (replace(vcpu, thread=replace(vcpu.thread, realtime="fifo")) for vcpu in fast.vcpus)
    return replace(fast, vcpus=tuple(threads))


REALTIME = snapshot(
    plain(
        32,
        isolated="8-15",
        nohz_full="8-15",
        kernel=replace(KERNEL, command_line="isolcpus=managed_irq,domain,8-15 nohz_full=8-15 rcu_nocbs=8-15"),
    ),
    [_realtime(8), guest(2, 4, cpus("0-7,16-31"))],
)
"""Right: housekeeping 0-3, emulators 4-7, vCPUs 16-31, and the arguments have 8-31."""
REALTIME_LIST = "8-31"

CAPTURED = snapshot(
    plain(32, kernel=replace(KERNEL, command_line="BOOT_IMAGE= root= ro console= intel_iommu= quiet")),
    [guest(1, 4, cpus("0-31"))],
)
"""The capture left the values of arguments out. Right: the arguments for 8-31, and no line with all arguments."""
