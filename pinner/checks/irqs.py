"""Interrupts: on CPUs of guests, away from their devices, or moved by irqbalance; and all of them by device. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from pinner.checks.common import (
    MANY,
    command,
    cpu_argument,
    device_node,
    housekeeping,
    roles,
)
from pinner.model.cpuset import CpuSet, union
from pinner.model.machine.boot import argument_cpus, isolcpus_flags
from pinner.model.machine.interrupts import (
    CpuRole,
    DeviceInterrupts,
    DeviceIrq,
    HostInterrupts,
    Interrupt,
    RoleCpus,
    is_managed,
)
from pinner.model.machine.process import Process
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading, HostSample, IrqCounts, Nic
from pinner.model.settings.cards import RpsQueue
from pinner.model.snapshot import Snapshot

BUSY_RATE = 1000.0
"""Interrupts a second on a guest's CPU, each an exit of the vCPU: above it a finding is critical."""
AFFINITY = "Linux: Documentation/core-api/irq/irq-affinity.rst"
SCALING = "Linux: Documentation/networking/scaling.rst"
IRQBALANCE = "irqbalance(1): IRQBALANCE_BANNED_CPULIST"


class _Counted(NamedTuple):
    """An interrupt of a device that came at least once."""

    irq: DeviceIrq
    now: IrqCounts
    before: IrqCounts | None
    """The same interrupt: the kernel gives a freed number to another device."""


def _devices(reading: HostReading) -> Iterator[tuple[str, list[_Counted]]]:
    devices: defaultdict[str, list[_Counted]] = defaultdict(list)
    now = {(counts.number, counts.name): counts for counts in reading.now.irqs}
    before = {(counts.number, counts.name): counts for counts in (reading.before or HostSample()).irqs}
    for irq in reading.snapshot.irqs.irqs if reading.snapshot.irqs else ():
        if (counts := now.get((irq.number, irq.name))) and counts.total:
            devices[irq.device].append(_Counted(irq, counts, before.get((irq.number, irq.name))))
    yield from sorted(devices.items())


def _is_managed(irq: DeviceIrq) -> bool:
    return is_managed(irq.name, irq.managed)


def _label(reading: HostReading, device: str) -> Subject:
    """People know the interface better than the address."""
    nics = [nic.name for nic in reading.details.nics if nic.device == device]
    return Subject("nic", nics[0]) if len(nics) == 1 else Subject("device", device)


def _rate_on(reading: HostReading, irqs: list[_Counted], cpus: CpuSet) -> float | None:
    """Interrupts a second. A count that was reset counts as none."""
    if reading.before is None:
        return None
    # A CPU that came online during the sample shows what it took since boot.
    known = cpus.ids - _came_online(reading.now, reading.before)
    total = 0
    for line in irqs:
        if line.before:
            earlier = line.before.counts
            total += sum(max(n - earlier.get(cpu, 0), 0) for cpu, n in line.now.counts.items() if cpu in known)
    return total / reading.seconds


def _came_online(sample: HostSample, earlier: HostSample) -> frozenset[int]:
    """The kernel lists times and interrupts of online CPUs only."""
    return frozenset(sample.spare_ms.keys() - earlier.spare_ms.keys() if earlier.spare_ms else ())


def _taking(reading: HostReading, irq: DeviceIrq) -> CpuSet:
    return irq.taking & reading.snapshot.topology.online


def _on_guests(reading: HostReading) -> Iterator[Found]:
    for device, irqs in _devices(reading):
        for role, cpus in roles(reading.snapshot):
            counted = [line for line in irqs if _taking(reading, line.irq) & cpus and not _is_managed(line.irq)]
            wrong = [line.irq for line in counted]
            if not wrong:
                continue
            both = union(_taking(reading, irq) & cpus for irq in wrong)
            seen = _rate_on(reading, counted, cpus)
            evidence = [Evidence("interrupts", len(wrong)), Evidence(f"{role} CPUs", str(both))]
            if seen is not None:
                evidence.append(Evidence("interrupt rate", seen, "1/s"))
            subject = _label(reading, device)
            yield Found(
                subject,
                f"interrupts of {subject} go to {role} CPUs {both}",
                tuple(evidence),
                tuple(_moves(wrong, housekeeping(reading, device_node(device, reading.snapshot)))),
                "critical" if seen is not None and seen > BUSY_RATE else None,
                targets=tuple(irq.target for irq in wrong),
            )


def _moves(irqs: list[DeviceIrq], wanted: CpuSet) -> Iterator[Remedy]:
    for irq in irqs[:MANY] if wanted else ():
        yield command(f"echo {wanted} > /proc/irq/{irq.number}/smp_affinity_list")


def _managed(reading: HostReading) -> Iterator[Found]:
    for device, irqs in _devices(reading):
        for role, cpus in roles(reading.snapshot):
            # A managed interrupt on an isolated CPU fires only if work on that CPU uses its queue.
            wrong = [line for line in irqs if _is_managed(line.irq) and _taking(reading, line.irq) & cpus]
            taken = sum(count for line in wrong for cpu, count in line.now.counts.items() if cpu in cpus)
            if not wrong or not taken:
                continue
            both = union(_taking(reading, line.irq) & cpus for line in wrong)
            subject = _label(reading, device)
            yield Found(
                subject,
                f"the kernel alone places {len(wrong)} interrupts of {subject}, on {role} CPUs {both}",
                (Evidence("interrupts", len(wrong)), Evidence(f"{role} CPUs", str(both)), Evidence("taken", taken)),
                tuple(_isolate(reading, cpus)),
            )


def _isolate(reading: HostReading, wrong: CpuSet) -> Iterator[Remedy]:
    """The argument that keeps managed interrupts off the CPUs of a role, unless this boot has it, it would end their
    load balancing, or the host would have no other CPUs."""
    snapshot = reading.snapshot
    flags, given = isolcpus_flags(snapshot.topology), argument_cpus(snapshot.topology, "isolcpus")
    balances = "domain" not in flags if flags else not given
    own = snapshot.topology.isolated | (snapshot.dedicated if balances else given)
    is_possible = balances or wrong <= own
    if housekeeping(reading) and is_possible and not ("managed_irq" in flags and wrong <= given):
        cpus = wrong | (own or union(cpus for _, cpus in roles(snapshot)))
        yield from cpu_argument(snapshot.topology, "isolcpus", cpus, "managed_irq")


def _off_node(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    node_of = {cpu.id: cpu.node for cpu in snapshot.topology.cpus}
    if len({node for node in node_of.values() if node is not None}) < 2:
        return
    for device, irqs in _devices(reading):
        node = device_node(device, snapshot)
        here = CpuSet.of(cpu for cpu, its in node_of.items() if its == node)
        # Where guests have all CPUs of the node, its interrupts belong to another one.
        if node is None or not here & snapshot.topology.online - union(cpus for _, cpus in roles(snapshot)):
            continue
        taking = ((line.irq, _taking(reading, line.irq)) for line in irqs if not _is_managed(line.irq))
        wrong = [irq for irq, its in taking if its and not its & here]
        if wrong:
            subject = _label(reading, device)
            yield Found(
                subject,
                f"{subject} is on node {node}, and {len(wrong)} of its interrupts go to other nodes",
                (
                    Evidence("node of the device", node),
                    Evidence("interrupts", len(wrong)),
                    Evidence("their CPUs", str(union(_taking(reading, irq) for irq in wrong))),
                ),
                tuple(_moves(wrong, housekeeping(reading, node) & here)),
                targets=tuple(irq.target for irq in wrong),
            )


def _irqbalance(reading: HostReading) -> Iterator[Found]:
    placed = union(cpus for _, cpus in roles(reading.snapshot))
    for balancer in reading.snapshot.irqbalance or ():
        subject = Subject("process", f"irqbalance ({balancer.pid})")
        banned = balancer.bans(_banned_by_default(reading))
        if banned is None:
            why = "its environment cannot be read"
            yield Found(subject, f"not known, because {why}", (Evidence("reason", why),), severity="unknown")
        elif open_to_it := placed - banned:
            every = placed | banned
            line = Remedy(f"IRQBALANCE_BANNED_CPULIST={every}", "/etc/default/irqbalance")
            yield Found(
                subject,
                f"irqbalance may move interrupts to the guests' CPUs {open_to_it}",
                (Evidence("banned CPUs", str(banned)), Evidence("placed CPUs", str(placed))),
                (line, command("systemctl restart irqbalance.service"))
                if reading.snapshot.topology.online - every
                else (),
                targets=(balancer.target,),
            )


def _banned_by_default(reading: HostReading) -> CpuSet:
    """irqbalance leaves isolcpus and nohz_full alone where its environment bans none."""
    topology = reading.snapshot.topology
    return (argument_cpus(topology, "isolcpus") & topology.isolated) | topology.nohz_full


def _masks(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    interfaces: defaultdict[str, list[RpsQueue]] = defaultdict(list)
    for queue in snapshot.rps or ():
        interfaces[queue.interface].append(queue)
    for name, queues in interfaces.items():
        rps = union(queue.cpus for queue in queues)
        for role, cpus in roles(snapshot):
            if both := rps & cpus:
                wanted = housekeeping(reading, device_node(name, snapshot)).mask()
                wrong = [queue for queue in queues if queue.cpus & cpus]
                yield Found(
                    Subject("nic", name),
                    f"RPS lets {role} CPUs {both} process packets that {name} receives",
                    (Evidence("rps_cpus", str(rps)), Evidence(f"{role} CPUs", str(both))),
                    tuple(
                        command(f"echo {wanted} > /sys/class/net/{quote(name)}/queues/rx-{queue.queue}/rps_cpus")
                        for queue in wrong[:MANY]
                    ),
                    targets=tuple(queue.target for queue in wrong),
                )


def _rfs(reading: HostReading) -> Iterator[Found]:
    entries = reading.details.settings.get("proc/sys/net/core/rps_sock_flow_entries")
    for nic in reading.details.nics:
        flows = sum(nic.rx_flows)
        if flows and entries == "0":
            yield Found(
                Subject("nic", nic.name),
                f"{nic.name} has tables for RFS, and the host's table is switched off",
                (Evidence("rps_flow_cnt", flows, "flows"), Evidence("rps_sock_flow_entries", 0, "flows")),
                (command(f"sysctl -w net.core.rps_sock_flow_entries={1 << (flows - 1).bit_length()}"),),
            )


def _counts_reset(reading: HostReading) -> Iterator[Found]:
    if reading.before is None:
        return
    gone = _came_online(reading.before, reading.now)
    before = {irq.number: irq for irq in reading.before.irqs}
    for irq in reading.now.irqs:
        earlier = before.get(irq.number)
        if earlier is None or earlier.name != irq.name:
            continue
        then = sum(count for cpu, count in earlier.counts.items() if cpu not in gone)
        if irq.total < then:
            why = f"its count went back from {then} to {irq.total}: it was set up anew, or the count wrapped"
            yield Found(Subject("irq", str(irq.number)), f"not known, because {why}", (Evidence("reason", why),))
    for cpu in sorted(gone):
        if taken := sum(cpu in irq.counts for irq in before.values()):
            why = f"CPU {cpu} went offline during the sample: its counts are not listed now (interrupts: {taken})"
            yield Found(Subject("cpu", str(cpu)), f"not known, because {why}", (Evidence("reason", why),))


CHECKS = (
    HostCheck(
        code="irq-on-guest-cpus",
        severity="warning",
        summary="interrupts of a device go to CPUs of guests",
        why="each interrupt stops the vCPU on that CPU and runs the host's network or disk code in its time",
        source=AFFINITY,
        find=_on_guests,
        critical=f"more than {BUSY_RATE:g} interrupts/s on these CPUs",
    ),
    HostCheck(
        code="irq-managed",
        severity="warning",
        summary="interrupts that the kernel alone places go to CPUs of guests",
        why="smp_affinity refuses a managed interrupt; only isolcpus=managed_irq keeps it away, as far as possible",
        source="Linux: Documentation/admin-guide/kernel-parameters.txt (isolcpus=managed_irq)",
        find=_managed,
    ),
    HostCheck(
        code="irq-off-node",
        severity="warning",
        summary="interrupts go to another NUMA node than that of their device",
        why="the packets or blocks cross the link between the nodes twice, and miss the cache that the device fills",
        source=SCALING,
        find=_off_node,
    ),
    HostCheck(
        code="irqbalance-unbanned",
        severity="warning",
        summary="irqbalance runs and may use the CPUs of guests",
        why="it moves interrupts every ten seconds by load, and overwrites affinities that were set by hand",
        source=IRQBALANCE,
        find=_irqbalance,
    ),
    HostCheck(
        code="rps-on-guest-cpus",
        severity="warning",
        summary="RPS sends received packets to CPUs of guests",
        why="the soft interrupts of RPS take time of the vCPUs on these CPUs",
        source=SCALING,
        find=_masks,
    ),
    HostCheck(
        code="rfs-half-set",
        severity="warning",
        summary="RFS is set for a card and switched off for the host",
        why="RFS needs both tables: without the host's, flows stay on the CPU of the hash",
        source=SCALING,
        find=_rfs,
    ),
    HostCheck(
        code="irq-count-reset",
        severity="unknown",
        summary="the count of an interrupt went back, or is not listed any more",
        why="no rate is known of an interrupt whose count was reset, or of a CPU that went offline, during the sample",
        source="pinner",
        find=_counts_reset,
    ),
)


_NAPI = re.compile(r"napi/(.+)-(\d+)")
"""Interface and NAPI id of a NAPI thread (networking/napi.rst). The kernel cuts names after 15 bytes."""
_ROLES: dict[str, CpuRole] = {"isolated": "isolated", "vCPU": "vcpu", "emulator": "emulator"}


def interrupt_map(reading: HostReading) -> HostInterrupts:
    snapshot = reading.snapshot
    by_device: defaultdict[tuple[str, str], list[Interrupt]] = defaultdict(list)
    interfaces = _interfaces(reading)
    nics = {nic.name: nic for nic in reading.details.nics}
    totals = {(counts.number, counts.name): counts.total for counts in reading.now.irqs}
    for irq in snapshot.irqs.irqs if snapshot.irqs else ():
        total = totals.get((irq.number, irq.name), 0)
        by_device[irq.device, interfaces.get(irq.device, "")].append(_interrupt(snapshot, irq, total))
    for process in snapshot.processes:
        named = _NAPI.fullmatch(process.name) if process.kernel and process.threads else None
        if named and (nic := nics.get(named[1])) is not None:
            by_device[nic.device, interfaces.get(nic.device, nic.name)].append(_napi(snapshot, process, nic))
    devices = (_device(snapshot, device, nics.get(name), irqs) for (device, name), irqs in by_device.items())
    ordered = sorted(devices, key=lambda one: (-1 if one.node is None else one.node, one.device, one.interface))
    return HostInterrupts(snapshot.host, tuple(ordered))


def _device(snapshot: Snapshot, device: str, nic: Nic | None, interrupts: list[Interrupt]) -> DeviceInterrupts:
    name, queues = (nic.name, len(nic.rx_flows)) if nic else ("", 0)
    node = device_node(device or name, snapshot)
    return DeviceInterrupts(device, name, node, queues, tuple(interrupts))


def _napi(snapshot: Snapshot, process: Process, nic: Nic) -> Interrupt:
    cpus = process.threads[0].affinity & snapshot.topology.online
    local = _local(snapshot, cpus, device_node(nic.device or nic.name, snapshot))
    return Interrupt("napi", process.pid, process.name, cpus, _roles(snapshot, cpus), local, None, 0)


def _interfaces(reading: HostReading) -> dict[str, str]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for nic in reading.details.nics:
        if nic.device:
            names[nic.device].append(nic.name)
    return {device: own[0] for device, own in names.items() if len(own) == 1}


def _interrupt(snapshot: Snapshot, irq: DeviceIrq, total: int) -> Interrupt:
    cpus = irq.taking & snapshot.topology.online
    local = _local(snapshot, cpus, device_node(irq.device, snapshot))
    return Interrupt("irq", irq.number, irq.name, cpus, _roles(snapshot, cpus), local, irq.managed, total)


def _roles(snapshot: Snapshot, cpus: CpuSet) -> tuple[RoleCpus, ...]:
    named = [RoleCpus(_ROLES[name], cpus & those) for name, those in roles(snapshot)]
    rest = cpus
    for role in named:
        rest -= role.cpus
    return tuple(role for role in (*named, RoleCpus("housekeeping", rest)) if role.cpus)


def _local(snapshot: Snapshot, cpus: CpuSet, node: int | None) -> bool | None:
    if node is None or not cpus:
        return None
    return all(cpu.node == node for cpu in snapshot.topology.cpus if cpu.id in cpus)
