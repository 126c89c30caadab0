"""Mistakes of isolation: arguments that miss each other, and work on CPUs that should be alone. Pure."""

import re
from collections.abc import Iterator
from shlex import quote

from pinner.checks.common import (
    MANY,
    command,
    cpu_argument,
    floats_over,
    host_subject,
    housekeeping,
    kernel_argument,
    plans,
    right_shared,
)
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.boot import argument, argument_cpus, arguments, isolated_cpus, isolcpus_flags
from pinner.model.machine.process import Process
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot, vcpu_threads
from pinner.model.text import counted

PARAMETERS = "Linux: Documentation/admin-guide/kernel-parameters.txt"
ISOLATION = "Linux: Documentation/admin-guide/cpu-isolation.rst"
_QUEUE = re.compile(r"(nvme\d+)q(\d+)", re.ASCII)


def _line(reading: HostReading) -> str:
    return reading.snapshot.topology.kernel.command_line


def _no_nohz(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    if without := topology.isolated - topology.nohz_full:
        yield Found(
            Subject("cpu", str(without)),
            f"isolated CPUs {without} keep their timer tick",
            (Evidence("isolated", str(topology.isolated)), Evidence("nohz_full", str(topology.nohz_full))),
            tuple(cpu_argument(topology, "nohz_full", topology.isolated | topology.nohz_full)),
        )


def _no_nocbs(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    # nohz_full makes its CPUs rcu_nocbs CPUs, too.
    offloaded = argument_cpus(topology, "rcu_nocbs") | topology.nohz_full
    if without := topology.isolated - offloaded:
        yield Found(
            Subject("cpu", str(without)),
            f"isolated CPUs {without} run the kernel's RCU callbacks",
            (Evidence("isolated", str(topology.isolated)), Evidence("rcu_nocbs", str(offloaded))),
            tuple(cpu_argument(topology, "rcu_nocbs", topology.isolated)),
        )


def _not_isolated(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    if without := topology.nohz_full - topology.isolated:
        yield Found(
            Subject("cpu", str(without)),
            f"CPUs {without} have nohz_full, and the scheduler balances load onto them",
            (Evidence("nohz_full", str(topology.nohz_full)), Evidence("isolated", str(topology.isolated))),
            tuple(_isolate(reading, without)),
        )


def _isolate(reading: HostReading, without: CpuSet) -> Iterator[Remedy]:
    """Not CPUs of the host, nor those on which guests float: they lose nohz_full instead. So do all of them where the
    flag domain would isolate other CPUs of the argument, too."""
    snapshot, topology = reading.snapshot, reading.snapshot.topology
    floating = union(thread.affinity for thread in vcpu_threads(snapshot) if len(thread.affinity) > 1)
    polling = snapshot.ovs.cpus if snapshot.ovs else CpuSet()
    alone = without & (reading.roles.vcpu | snapshot.dedicated | polling) - snapshot.shared - floating
    if argument_cpus(topology, "isolcpus") - isolated_cpus(topology) - topology.isolated - alone:
        alone = CpuSet()
    if alone:
        yield from cpu_argument(topology, "isolcpus", alone, "domain")
    if balanced := without - alone:
        yield kernel_argument(argument(topology, "nohz_full", topology.nohz_full - balanced))


def _unbound(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    if both := topology.kernel.unbound & topology.isolated:
        free = housekeeping(reading)
        rest = topology.kernel.unbound & free or free
        yield Found(
            Subject("cpu", str(both)),
            f"unbound work queues of the kernel may use isolated CPUs {both}",
            (Evidence("work queues", str(topology.kernel.unbound)), Evidence("isolated", str(topology.isolated))),
            (command(f"echo {rest.mask()} > /sys/devices/virtual/workqueue/cpumask"),) if rest else (),
        )


def _kernel_threads(reading: HostReading) -> Iterator[Process]:
    for process in reading.snapshot.processes:
        movable = any(thread.immovable_reason != "per-cpu" for thread in process.threads)
        if process.kernel and movable and process.immovable_reason in ("", "not-permitted"):
            yield process


def _kthreads(reading: HostReading) -> Iterator[Found]:
    isolated, ran = reading.snapshot.topology.isolated, 0
    wrong = [kthread for kthread in _kernel_threads(reading) if kthread.threads[0].affinity & isolated]
    if not wrong:
        return
    before = reading.before.threads if reading.before else {}
    for process in wrong:
        first, last = before.get(process.pid), reading.now.threads.get(process.pid)
        ran += bool(first and last and last.run_ns > first.run_ns)
    yield Found(
        Subject("cpu", str(union(kthread.threads[0].affinity & isolated for kthread in wrong))),
        f"{counted(len(wrong), 'kernel thread')} may run on isolated CPUs, such as {wrong[0].name}",
        (
            Evidence("kernel threads", len(wrong)),
            Evidence("ran in the sample", ran),
            Evidence("isolated", str(isolated)),
        ),
        tuple(_elsewhere(reading, wrong[:MANY])),
    )


def _elsewhere(reading: HostReading, threads: list[Process]) -> Iterator[Remedy]:
    """Kernel threads of a node stay on its CPUs."""
    homes, free = _homes(reading.snapshot), housekeeping(reading)
    for process in threads:
        home = homes.get(process.name, free)
        if cpus := home & free or home & reading.roles.cpus - reading.snapshot.shared:
            yield command(f"taskset -pc {cpus} {process.pid}")


def _homes(snapshot: Snapshot) -> dict[str, CpuSet]:
    topology = snapshot.topology
    here = {node.id: node.cpus - topology.isolated for node in topology.nodes}
    return {f"{name}{node}": cpus for name in ("kswapd", "kcompactd") for node, cpus in here.items()}


def _floating(reading: HostReading) -> Iterator[Found]:
    isolated = reading.snapshot.topology.isolated
    for guest in reading.snapshot.guests:
        threads = [vcpu.thread for vcpu in guest.vcpus if vcpu.thread]
        wrong = [floating for floating in threads if floating.affinity & isolated and len(floating.affinity) > 1]
        if wrong:
            both = union(thread.affinity & isolated for thread in wrong)
            yield Found(
                Subject("guest", guest.name),
                f"{counted(len(wrong), 'vCPU')} of guest {guest.name} may use several CPUs, isolated ones too: {both}",
                (Evidence("vCPUs", len(wrong)), Evidence("isolated CPUs", str(both))),
                (*plans("--strategy isolated", ""), *_other_set(reading, guest)),
            )


def _other_set(reading: HostReading, guest: Guest) -> Iterator[Remedy]:
    return right_shared(reading) if floats_over(guest, reading.snapshot.shared) else iter(())


def _ignored(reading: HostReading) -> Iterator[Found]:
    topology, line = reading.snapshot.topology, _line(reading)
    known = topology.online | topology.offline
    configuration = quote(f"/boot/config-{topology.kernel.release}")
    if not line or not known:
        return
    for name, active in (("nohz_full", topology.nohz_full), ("isolcpus", topology.isolated)):
        wanted = argument_cpus(topology, name) & known
        if name == "isolcpus" and (flags := isolcpus_flags(topology)) and "domain" not in flags:
            continue  # it does not ask for isolation from the load balancing
        if wanted and not active:
            yield Found(
                host_subject(reading),
                f"the boot asked for {name}={wanted}, and this kernel has no such CPUs",
                (
                    Evidence(name, str(wanted)),
                    Evidence("in force", str(active)),
                    Evidence("kernel", reading.snapshot.topology.kernel.release),
                ),
                (Remedy(f"zgrep -E 'NO_HZ_FULL|CPU_ISOLATION' {configuration}", "as any user"),),
            )
    for name in ("isolcpus", "nohz_full", "rcu_nocbs"):
        if absent := argument_cpus(topology, name) - known:
            yield Found(
                host_subject(reading),
                f"the argument {name} has CPUs {absent}, which the host does not have",
                (Evidence(name, str(absent)), Evidence("CPUs of the host", str(known))),
                tuple(cpu_argument(topology, name, CpuSet())),
            )


def _irqaffinity(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    given = argument_cpus(snapshot.topology, "irqaffinity") & snapshot.topology.online
    alone = snapshot.topology.isolated | snapshot.dedicated | argument_cpus(snapshot.topology, "isolcpus")
    if both := given & alone:
        free = housekeeping(reading) - alone
        rest = free & given or free
        yield Found(
            Subject("cpu", str(both)),
            f"the argument irqaffinity sends new interrupts to CPUs {both}, which are isolated or dedicated",
            (Evidence("irqaffinity", str(given)), Evidence("CPUs of both", str(both))),
            (kernel_argument(f"irqaffinity={rest}"),) if rest else (),
        )


def _off_node(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    homes = _homes(reading.snapshot)
    wrong: list[tuple[Process, CpuSet]] = []
    for process in _kernel_threads(reading):
        home = homes.get(process.name)
        if home and process.threads[0].affinity & topology.online - topology.isolated - home:
            wrong.append((process, home))
    if wrong:
        yield Found(
            host_subject(reading),
            f"{counted(len(wrong), 'kernel thread')} of a node's memory may run on CPUs of other nodes",
            (
                Evidence("kernel threads", len(wrong)),
                *(
                    Evidence(process.name, f"{process.threads[0].affinity} instead of {home}")
                    for process, home in wrong
                ),
            ),
            tuple(_elsewhere(reading, [process for process, _ in wrong[:MANY]])),
        )


def _nvme(reading: HostReading) -> Iterator[Found]:
    if "managed_irq" not in arguments(_line(reading)).get("isolcpus", "").split(","):
        return
    queues: dict[str, int] = {}
    for irq in reading.snapshot.irqs.irqs if reading.snapshot.irqs else ():
        for disk, number in _QUEUE.findall(irq.name):
            queues[disk] = queues.get(disk, 0) + (number != "0")
    online = reading.snapshot.topology.online
    free = len(online - argument_cpus(reading.snapshot.topology, "isolcpus"))
    for disk, count in sorted(queues.items()):
        if 0 < count <= free < len(online):
            yield Found(
                Subject("device", disk),
                f"{disk} has {count} queues for {len(online)} CPUs, of which {free} are outside isolcpus=managed_irq",
                (Evidence("queues", count), Evidence("CPUs", len(online)), Evidence("CPUs without isolation", free)),
                (Remedy("<iothreads>2</iothreads>, pinned to housekeeping CPUs", "the domain XML", "guest restart"),),
            )


CHECKS = (
    HostCheck(
        code="isolation-without-nohz",
        severity="warning",
        summary="isolated CPUs keep their timer tick",
        why="the tick stops a vCPU up to a thousand times a second, though nothing else runs on its CPU",
        source=ISOLATION,
        find=_no_nohz,
    ),
    HostCheck(
        code="isolation-without-nocbs",
        severity="warning",
        summary="isolated CPUs run RCU callbacks",
        why="the kernel's callbacks run in the time of the vCPU on that CPU",
        source=f"{PARAMETERS} (rcu_nocbs)",
        find=_no_nocbs,
    ),
    HostCheck(
        code="nohz-without-isolation",
        severity="warning",
        summary="CPUs have nohz_full, and the scheduler uses them for any load",
        why="with two tasks on a CPU the tick is back, and nohz_full makes each entry to the kernel slower",
        source=f"{PARAMETERS} (nohz_full)",
        find=_not_isolated,
    ),
    HostCheck(
        code="workqueue-on-isolated",
        severity="warning",
        summary="unbound work queues may use isolated CPUs",
        why="the kernel's deferred work runs in the time of the vCPU on that CPU",
        source="Linux: Documentation/core-api/workqueue.rst",
        find=_unbound,
    ),
    HostCheck(
        code="kthreads-on-isolated",
        severity="warning",
        summary="kernel threads may run on isolated CPUs",
        why="they run in the time of the vCPU on that CPU",
        source=ISOLATION,
        find=_kthreads,
    ),
    HostCheck(
        code="floating-guest-on-isolated",
        severity="critical",
        summary="vCPUs with several CPUs may use isolated ones",
        why="nothing balances load on isolated CPUs: all these vCPUs gather on one CPU while others are idle",
        source=f"{PARAMETERS} (isolcpus)",
        find=_floating,
    ),
    HostCheck(
        code="kernel-arguments-ignored",
        severity="warning",
        summary="the kernel ignores arguments of its command line",
        why="the CPUs are not isolated as their owner believes",
        source=PARAMETERS,
        find=_ignored,
    ),
    HostCheck(
        code="irqaffinity-isolated",
        severity="warning",
        summary="the argument irqaffinity has CPUs that are isolated or that Nova dedicates",
        why="each device that appears gets interrupts there, in the time of the vCPU on that CPU",
        source=f"{PARAMETERS} (irqaffinity)",
        find=_irqaffinity,
    ),
    HostCheck(
        code="node-kthreads-off-node",
        severity="warning",
        summary="kswapd or kcompactd of a node may run on other nodes",
        why="they work on memory from afar, and take time of guests there; before Linux 7.0, a change of a cpuset "
        "partition overwrites their masks, and so does a CPU that comes online later",
        source="Linux: mm/vmscan.c (kswapd), mm/compaction.c (kcompactd)",
        find=_off_node,
    ),
    HostCheck(
        code="nvme-queues-cut",
        severity="warning",
        summary="an NVMe disk has as few queues as the host has CPUs without isolation",
        why="isolated CPUs have no queues of their own: vCPUs there share those of the housekeeping CPUs",
        source=f"{PARAMETERS} (isolcpus=managed_irq)",
        find=_nvme,
    ),
)
