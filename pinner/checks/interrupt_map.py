"""The interrupts of a host by device, node and role of their CPUs. Pure."""

import re
from collections import defaultdict

from pinner.checks.common import device_node, roles
from pinner.model.cpuset import CpuSet
from pinner.model.machine.interrupts import CpuRole, DeviceInterrupts, DeviceIrq, HostInterrupts, Interrupt, RoleCpus
from pinner.model.processes.process import Process
from pinner.model.reading import HostReading, Nic
from pinner.model.snapshot import Snapshot

_NAPI = re.compile(r"napi/(.+)-(\d+)")
"""A NAPI thread: interface and NAPI id (Documentation/networking/napi.rst). The kernel cuts names after 15 bytes, so
that long names of interfaces are not found."""
_ROLES: dict[str, CpuRole] = {"isolated": "isolated", "vCPU": "vcpu", "emulator": "emulator"}


def interrupt_map(reading: HostReading) -> HostInterrupts:
    snapshot = reading.snapshot
    found: defaultdict[tuple[str, str], list[Interrupt]] = defaultdict(list)
    interfaces = _interfaces(reading)
    nics = {nic.name: nic for nic in reading.details.nics}
    totals = {(counts.number, counts.name): counts.total for counts in reading.now.irqs}
    for irq in snapshot.irqs.irqs if snapshot.irqs else ():
        total = totals.get((irq.number, irq.name), 0)
        found[irq.device, interfaces.get(irq.device, "")].append(_interrupt(snapshot, irq, total))
    for process in snapshot.processes:
        named = _NAPI.fullmatch(process.name) if process.kernel and process.threads else None
        if named and (nic := nics.get(named[1])) is not None:
            found[nic.device, interfaces.get(nic.device, nic.name)].append(_napi(snapshot, process, nic))
    devices = (_device(snapshot, device, nics.get(name), each) for (device, name), each in found.items())
    ordered = sorted(devices, key=lambda each: (-1 if each.node is None else each.node, each.device, each.interface))
    return HostInterrupts(snapshot.host, tuple(ordered))


def _device(snapshot: Snapshot, device: str, nic: Nic | None, found: list[Interrupt]) -> DeviceInterrupts:
    name, queues = (nic.name, len(nic.rx_flows)) if nic else ("", 0)
    node = device_node(device or name, snapshot)
    return DeviceInterrupts(device, name, node, queues, tuple(found))


def _napi(snapshot: Snapshot, process: Process, nic: Nic) -> Interrupt:
    cpus = process.threads[0].affinity & snapshot.topology.online
    local = _local(snapshot, cpus, device_node(nic.device or nic.name, snapshot))
    return Interrupt("napi", process.pid, process.name, cpus, _roles(snapshot, cpus), local, None, 0)


def _interfaces(reading: HostReading) -> dict[str, str]:
    """By PCI address."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for nic in reading.details.nics:
        if nic.device:
            names[nic.device].append(nic.name)
    return {device: each[0] for device, each in names.items() if len(each) == 1}


def _interrupt(snapshot: Snapshot, irq: DeviceIrq, total: int) -> Interrupt:
    cpus = irq.taking & snapshot.topology.online
    local = _local(snapshot, cpus, device_node(irq.device, snapshot))
    return Interrupt("irq", irq.number, irq.name, cpus, _roles(snapshot, cpus), local, irq.managed, total)


def _roles(snapshot: Snapshot, cpus: CpuSet) -> tuple[RoleCpus, ...]:
    """Without roles that have no CPU."""
    named = [RoleCpus(_ROLES[name], cpus & those) for name, those in roles(snapshot)]
    rest = cpus
    for each in named:
        rest -= each.cpus
    return tuple(each for each in (*named, RoleCpus("housekeeping", rest)) if each.cpus)


def _local(snapshot: Snapshot, cpus: CpuSet, node: int | None) -> bool | None:
    if node is None or not cpus:
        return None
    return all(cpu.node == node for cpu in snapshot.topology.cpus if cpu.id in cpus)
