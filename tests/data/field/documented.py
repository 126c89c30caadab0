"""The hosts of the documented case: one of 40 CPUs, the even ones on node 0, with a guest of 2 vCPUs and one of 16,
with memory on node 0, and six busy daemons; and one of 32 CPUs, of the three schemes."""

from dataclasses import replace

from support.hosts import GIB, guest, interleaved, plain, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import NovaIdentity
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


def host_of_32(nodes: int = 1, vcpus: int = 16, isolated: str = "") -> Snapshot:
    """With two guests, each with its memory on a node of its own where there are two, and a busy process."""
    top = plain(32, nodes, isolated=isolated, nohz_full=isolated)
    floor = top.online - top.isolated
    guests = [
        guest(1, vcpus, floor, iothreads=1, vhost_threads=1, memory={0: 2 * GIB}),
        guest(2, vcpus, floor, iothreads=1, vhost_threads=1, memory={nodes - 1: 2 * GIB}),
    ]
    return snapshot(top, guests, [process(300, 40.0, str(floor), str(floor)), process(400, 1.9, str(floor))])


def pin(owner: str, kind: PinKind, cpus: str, part: int | None = None) -> RequestedPin:
    return RequestedPin(owner, kind, CpuSet.parse(cpus), part)


FOURTH = (pin("g1", "emulator", "5"), pin("g1", "vcpu", "6", 0), pin("g1", "vcpu", "7", 1))
"""Stage 4 of the case: virsh emulatorpin 5, vcpupin 0 6, vcpupin 1 7."""
FIFTH = (*(pin(str(pid), "process", "0,2,4,6") for pid in PIDS), pin("g2", "all", EVEN))
"""Stage 5 of the case: taskset of six busy processes, and of the whole QEMU."""

HOST = documented_host()
SETS = ("0-1,20-21", "2-3,22-23", "4-19,24-39")
"""Housekeeping, emulators, vCPUs: an eighth of the 20 CPUs of a node is one core, for each of the two sets."""

ONE_GUEST = replace(HOST, guests=HOST.guests[:1])
"""Stage 4 of the case, which has this guest alone."""
ONE_GUEST_PLACES = {"emulator": "2,22", 0: "4", 1: "24"}
"""All on node 0, where the memory is: the emulator set's core there, and the first free core."""

PLACES = {
    "g1": {"emulator": "3,23", 0: "5", 1: "25"},
    "g2": {"emulator": "2,22"} | {vcpu: str(4 + vcpu + 19 * (vcpu % 2)) for vcpu in range(16)},
}
"""Node 0 has 16 CPUs for 18 vCPUs. So one guest is on node 1, with 8 GiB remote, whichever it is: the wider one is
placed first. Two vCPUs have a core: 0 and 1 have CPUs 4 and 24, 2 and 3 have 6 and 26, up to 18 and 38."""


def with_flavors(host: Snapshot, **strategies: str) -> Snapshot:
    """The host whose guests, by name, have a flavor that asks for this strategy."""

    def flavored(name: str) -> NovaIdentity:
        return NovaIdentity(name, "project", "user", "flavor", {"pinner:strategy": strategies[name]})

    guests = (replace(each, nova=flavored(each.name)) if each.name in strategies else each for each in host.guests)
    return replace(host, guests=tuple(guests))


MIXED = with_flavors(HOST, g1="exclusive")
"""The small guest gets the first free core of node 0. All 30 other CPUs for vCPUs are for the large one."""
MIXED_PLACES = {
    "g1": {"emulator": "2,22", 0: "4", 1: "24"},
    "g2": {"emulator": "2-3,22-23"} | dict.fromkeys(range(16), "5-19,25-39"),
}
