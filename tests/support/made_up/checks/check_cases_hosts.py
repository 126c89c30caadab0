"""Hosts with and without each fault of isolation, memory, guests, Nova's sets and the host itself."""

from dataclasses import replace

from data.field.named import floats_outside, irqaffinity, remote_gpu, split_core, squeezed_osds, topology
from support.hosts import GIB, KERNEL, cpus, guest, interleaved, plain, process
from support.made_up.readings import SECONDS, Seen, host, irq, placed, reading

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Cgroup
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.process import Process, Thread
from pinner.model.machine.topology import FrequencyDomain, HugePages, Topology
from pinner.model.reading import HostDetails, HostReading, HostSample, IdleState, Storage, ThreadTimes
from pinner.model.settings.power import WakeLimit
from pinner.model.snapshot import OvsDpdk, OvsMasks
from pinner.model.states import Governor, PartitionState, Word

GUEST = placed()
CLOCK = "sys/devices/system/clocksource/clocksource0"
THP = "sys/kernel/mm/transparent_hugepage"
TICKLESS = "BOOT_IMAGE=/vmlinuz isolcpus=managed_irq,domain,4-7 nohz_full=4-7 rcu_nocbs=4-7"


def booted(arguments: str, *, isolated: str = "", nohz_full: str = "", **more: object) -> Topology:
    kernel = replace(KERNEL, command_line=arguments, **more)
    return host(isolated=isolated, nohz_full=nohz_full, kernel=kernel)


def setting(path: str, value: str, *guests, **more) -> HostReading:
    return reading(Seen(details=HostDetails(settings={path: value})), guests=guests or [GUEST], **more)


def with_sysctl(key: str, value: int, *guests, **more) -> HostReading:
    return reading(Seen(sysctls={key: value}), guests=guests or [GUEST], **more)


def governed(governor: str) -> HostReading:
    top = host()
    top = replace(top, cpus=tuple(replace(cpu, governor=governor) for cpu in top.cpus))
    domains = (FrequencyDomain(0, top.online, Governor(governor)),)
    return reading(guests=[GUEST], top=top, governors=domains)


def idle(spent: int) -> HostReading:
    states = (IdleState(5, 3, "C6", 133, False, at) for at in (100, 100 + spent))
    before, now = (HostSample(idle=(state,)) for state in states)
    return reading(before, now, guests=[GUEST], resume_latency=(WakeLimit(5, Word("0"), 133),))


def pair(first: str, second: str) -> HostReading:
    """Two guests of one vCPU on a host whose cores have the CPUs n and n + 8."""
    return reading(
        guests=[guest(1, 1, cpus("0"), pins=[first]), guest(2, 1, cpus("0"), pins=[second])], top=interleaved(8)
    )


def realtime(runtime: int) -> HostReading:
    vcpu = GUEST.vcpus[0]
    fifo = replace(GUEST, vcpus=(replace(vcpu, thread=replace(vcpu.thread, realtime="fifo")),))
    return with_sysctl("kernel.sched_rt_runtime_us", runtime, fifo)


def starving(emulator: str) -> HostReading:
    alone = guest(1, 1, cpus(emulator), pins=["4"])
    vcpu = alone.vcpus[0]
    return reading(guests=[replace(alone, vcpus=(replace(vcpu, thread=replace(vcpu.thread, realtime="fifo")),))])


def kernel_thread(name: str, mask: str, pid: int = 60) -> Process:
    return Process(pid, 1, name, "", "", True, 0.0, (Thread(pid, 1, name, cpus(mask)),))


def huge(total: int) -> HostReading:
    top = booted("hugepages=512 ro")
    node = replace(top.nodes[0], hugepages=(HugePages(2048, total, 0),))
    return reading(top=replace(top, nodes=(node, top.nodes[1])))


def huge_on(node: int) -> HostReading:
    top = host()
    nodes = tuple(replace(each, hugepages=(HugePages(2048, 512, 0),)) for each in top.nodes)
    return reading(guests=[placed(numa=GuestNuma(huge_kib={node: GIB}))], top=replace(top, nodes=nodes))


def counters(before: dict[str, int], now: dict[str, int], *guests) -> HostReading:
    return reading(HostSample(counters=before), HostSample(counters=now), guests=guests)


def main_loop(percent: float) -> HostReading:
    times = (ThreadTimes(at, 0) for at in (0, round(percent / 100 * SECONDS * 1e9)))
    before, now = (HostSample(threads={GUEST.pid: each}) for each in times)
    return reading(before, now, guests=[GUEST])


def cells(count: int, memory: int = 0) -> GuestNuma:
    binding = MemoryBinding("strict", (memory,))
    return GuestNuma(tuple(GuestCell(n, CpuSet.of([2 * n, 2 * n + 1]), GIB, binding) for n in range(count)))


def weighed(weight: int, vcpus: int = 2, poor: tuple[int, int] = (2, 100)) -> HostReading:
    """Two guests on the same CPUs. ``poor``: the vCPUs and the weight of the first."""
    state = PartitionState("member", CpuSet())
    paths = [("machine.slice", f"machine.slice/g{number}") for number in (1, 2)]
    guests = [
        guest(number, count, cpus("0-15"), cgroups=tuple(Cgroup(path, state) for path in units))
        for number, count, units in zip((1, 2), (poor[0], vcpus), paths, strict=True)
    ]
    weights = {"machine.slice/g1": poor[1], "machine.slice/g2": weight}
    return reading(Seen(details=HostDetails(weights=weights)), guests=guests)


def migrating(mask: str) -> HostReading:
    threads = tuple(Thread(900 + n, 7, f"multifdsend_{n}", cpus(mask)) for n in range(8))
    emulator = replace(GUEST.emulator, threads=GUEST.emulator.threads + threads)
    return reading(guests=[replace(GUEST, emulator=emulator)])


def foreign(mask: str) -> HostReading:
    other = process(5000, 1.0, mask, name="qemu-kvm", immovable_reason="guest")
    return reading(guests=[GUEST], processes=(other,))


def nova(**sets: str) -> HostReading:
    more = {name: cpus(value) for name, value in sets.items()}
    return reading(top=plain(64, 4), **more)


def conf(**options: str) -> HostReading:
    sets = {"dedicated": options.get("dedicated", ""), "shared": options.get("shared", options.get("pin_set", ""))}
    return reading(nova=NovaConf((), **options), **{name: cpus(value) for name, value in sets.items()})


def nvme(queues: int) -> HostReading:
    arguments = "isolcpus=managed_irq,domain,4-15 nohz_full=4-15"
    irqs = tuple(irq(90 + n, "0", {0: 1}, name=f"nvme0q{n}") for n in range(queues + 1))
    return reading(Seen(irqs=irqs), top=booted(arguments, isolated="4-15", nohz_full="4-15"))


CASES = {
    "cpu-slow-governor": (governed("powersave"), governed("performance")),
    "cpu-deep-idle": (idle(900_000), idle(0)),
    "smt-shared-core": (pair("1", "9"), pair("1", "2")),
    "clocksource-slow": (
        setting(f"{CLOCK}/current_clocksource", "hpet"),
        setting(f"{CLOCK}/current_clocksource", "tsc"),
    ),
    "rt-throttling": (realtime(950_000), realtime(-1)),
    "emulator-on-vcpus": (
        reading(guests=[guest(1, 1, cpus("4"), pins=["4"])]),
        reading(guests=[guest(1, 1, cpus("2"), pins=["4"])]),
    ),
    "numa-balancing": (
        with_sysctl("kernel.numa_balancing", 1),
        with_sysctl("kernel.numa_balancing", 0),
    ),
    "ksm-merging": (setting("sys/kernel/mm/ksm/run", "1"), setting("sys/kernel/mm/ksm/run", "0")),
    "thp-never": (
        setting(f"{THP}/enabled", "always madvise [never]"),
        setting(f"{THP}/enabled", "always [madvise] never"),
    ),
    "thp-defrag": (
        setting(f"{THP}/defrag", "[always] defer defer+madvise madvise never"),
        setting(f"{THP}/defrag", "always defer defer+madvise [madvise] never"),
    ),
    "hugepages-missing": (huge(300), huge(512)),
    "hugepages-remote": (huge_on(1), huge_on(0)),
    "memory-remote": (reading(guests=[placed(memory={0: 100, 1: 900})]), reading(guests=[placed(memory={0: 900})])),
    "host-swapping": (
        counters({"pswpout": 5}, {"pswpout": 90}, GUEST),
        counters({"pswpout": 5}, {"pswpout": 5}, GUEST),
    ),
    "guest-swapped": (
        reading(HostSample(swapped_kib={GUEST.pid: 4096}), guests=[GUEST]),
        reading(HostSample(swapped_kib={GUEST.pid: 0}), guests=[GUEST]),
    ),
    "memory-low": (
        counters({}, {"MemTotal": 1000, "MemAvailable": 20}),
        counters({}, {"MemTotal": 1000, "MemAvailable": 200}),
    ),
    "isolation-without-nohz": (
        reading(top=booted("isolcpus=4-7", isolated="4-7")),
        reading(top=booted(TICKLESS, isolated="4-7", nohz_full="4-7")),
    ),
    "isolation-without-nocbs": (
        reading(top=booted("isolcpus=4-7", isolated="4-7")),
        reading(top=booted("isolcpus=4-7 rcu-nocbs=4-7", isolated="4-7")),
    ),
    "nohz-without-isolation": (
        reading(top=booted("nohz_full=4-7", nohz_full="4-7")),
        reading(top=booted(TICKLESS, isolated="4-7", nohz_full="4-7")),
    ),
    "workqueue-on-isolated": (
        reading(top=booted(TICKLESS, isolated="4-7", nohz_full="4-7", unbound=cpus("0-15"))),
        reading(top=booted(TICKLESS, isolated="4-7", nohz_full="4-7", unbound=cpus("0-3,8-15"))),
    ),
    "kthreads-on-isolated": (
        reading(top=booted(TICKLESS, isolated="4-7"), processes=(kernel_thread("kworker", "0-15"),)),
        reading(top=booted(TICKLESS, isolated="4-7"), processes=(kernel_thread("kworker", "0-3"),)),
    ),
    "floating-guest-on-isolated": (
        reading(top=booted(TICKLESS, isolated="4-7"), guests=[guest(1, 2, cpus("0-15"))]),
        reading(top=booted(TICKLESS, isolated="4-7"), guests=[guest(1, 2, cpus("0-3"))]),
    ),
    "kernel-arguments-ignored": (
        reading(top=booted("nohz_full=4-7,40", nohz_full="4-7")),
        reading(top=booted("nohz_full=4-7", nohz_full="4-7")),
    ),
    "node-kthreads-off-node": (
        reading(processes=(kernel_thread("kswapd1", "0-15"),)),
        reading(processes=(kernel_thread("kswapd1", "8-15"),)),
    ),
    "nvme-queues-cut": (nvme(4), nvme(16)),
    "realtime-starves-emulator": (starving("4"), starving("2")),
    "guest-without-iothread": (main_loop(80.0), main_loop(3.0)),
    "guest-without-cells": (
        reading(guests=[placed("6-9")]),
        reading(guests=[placed("4-11", numa=cells(2))]),
    ),
    "guest-cells-contradict": (
        reading(guests=[placed("4-7", numa=cells(1, memory=1), memory={1: GIB})]),
        reading(guests=[placed("4-7", numa=cells(1, memory=0))]),
    ),
    "guest-weights-differ": (weighed(1000), weighed(100)),
    "migration-on-guest-cpus": (migrating("2"), migrating("8-15")),
    "vcpus-overlap": (pair("3", "3"), pair("3", "4")),
    "foreign-guest": (foreign("0-15"), foreign("8-9")),
    "nova-dedicated-mixed": (
        reading(top=booted("isolcpus=4-7", isolated="4-7"), dedicated=cpus("4-9"), baseline=cpus("0-3")),
        reading(top=booted("isolcpus=4-9", isolated="4-9"), dedicated=cpus("4-9"), baseline=cpus("0-3")),
    ),
    "nova-shared-isolated": (
        reading(top=booted("isolcpus=4-7", isolated="4-7"), shared=cpus("2-5")),
        reading(top=booted("isolcpus=4-7", isolated="4-7"), shared=cpus("2-3")),
    ),
    "nova-core-split": (HostReading(split_core.HOST), HostReading(split_core.WHOLE)),
    "nova-guest-outside-shared": (HostReading(floats_outside.HOST), HostReading(floats_outside.INSIDE)),
    "guest-device-remote": (HostReading(remote_gpu.HOST), HostReading(remote_gpu.NEAR)),
    "guest-topology-contradicts": (HostReading(topology.TOGETHER), HostReading(topology.ALIKE)),
    "irqaffinity-isolated": (HostReading(irqaffinity.HOST), HostReading(irqaffinity.APART)),
    "processes-squeezed": (HostReading(squeezed_osds.HOST), HostReading(squeezed_osds.ROOMY)),
    "nova-sets-overlap": (nova(shared="2-9", dedicated="8-20"), nova(shared="2-7", dedicated="8-20")),
    "cpuaffinity-isolated": (
        reading(top=booted("isolcpus=4-7", isolated="4-7"), baseline=cpus("0-5")),
        reading(top=booted("isolcpus=4-7", isolated="4-7"), baseline=cpus("0-3")),
    ),
    "nova-few-host-cpus": (nova(dedicated="2-63"), nova(dedicated="8-63")),
    "nova-dedicated-some-nodes": (nova(dedicated="2-31"), nova(dedicated="2-15")),
    "nova-old-and-new-option": (
        conf(pin_set="2-7", dedicated="8-15"),
        conf(shared="2-7", dedicated="8-15"),
    ),
    "nova-old-option": (conf(pin_set="2-7"), conf(shared="2-7")),
    "ovs-mask-in-nova-sets": (
        reading(dedicated=cpus("4-7"), ovs=OvsDpdk(OvsMasks(pmd=cpus("4")))),
        reading(dedicated=cpus("4-7"), ovs=OvsDpdk(OvsMasks(pmd=cpus("8")))),
    ),
    "placer-running": (
        reading(processes=(process(70, 0.0, "0-15", name="numad"),)),
        reading(processes=(process(70, 0.0, "0-15", name="sshd"),)),
    ),
    "another-pinner": (
        reading(processes=(replace(process(70, 0.0, "0-15"), command="/usr/bin/pinner serve"),)),
        reading(processes=(replace(process(70, 0.0, "0-15"), command="/usr/bin/pinner check"),)),
    ),
    "housekeeping-pressure": (
        reading(HostSample(pressure={"system.slice.cpu.some": 30.0}), guests=[guest(1, 4, cpus("0-15"))]),
        reading(HostSample(pressure={"system.slice.cpu.some": 2.0})),
    ),
    "journal-disk-full": (
        reading(Seen(details=HostDetails(storage=(Storage("/var/lib/pinner", 10_000_000, 1000),)))),
        reading(Seen(details=HostDetails(storage=(Storage("/var/lib/pinner", 10_000_000, 5_000_000),)))),
    ),
}
