"""The host of the documented case: 40 CPUs, the even ones on node 0; a guest of 2 vCPUs and one of 16, with memory on
node 0; six busy daemons."""

from support.hosts import GIB, guest, interleaved, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import PinKind, RequestedPin
from pinner.model.snapshot import Snapshot

EVEN = ",".join(str(cpu) for cpu in range(8, 40, 2))
DAEMONS = ("nova-compute", "neutron-ovs-agent", "ceph-osd", "ovs-vswitchd", "libvirtd", "fluentd")
PIDS = tuple(300 + 100 * number for number in range(len(DAEMONS)))


def documented_host() -> Snapshot:
    top = interleaved(20)
    guests = [
        guest(number, vcpus, top.online, iothreads=1, vhost_threads=1, memory={0: 8 * GIB})
        for number, vcpus in ((1, 2), (2, 16))
    ]
    daemons = (process(pid, 20.0, str(top.online), name=name) for pid, name in zip(PIDS, DAEMONS, strict=True))
    return snapshot(top, guests, daemons)


def pin(owner: str, kind: PinKind, cpus: str, part: int | None = None) -> RequestedPin:
    return RequestedPin(owner, kind, CpuSet.parse(cpus), part)


FOURTH = (pin("g1", "emulator", "5"), pin("g1", "vcpu", "6", 0), pin("g1", "vcpu", "7", 1))
"""Stage 4 of the case: virsh emulatorpin 5, vcpupin 0 6, vcpupin 1 7."""
FIFTH = (*(pin(str(pid), "process", "0,2,4,6") for pid in PIDS), pin("g2", "all", EVEN))
"""Stage 5 of the case: taskset of six busy processes, and of the whole QEMU."""
