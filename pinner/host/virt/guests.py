"""Builds a Guest from libvirt's XML, /proc and the counters of its taps."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lxml import etree

from pinner.host.kernel import files, partitions, procfs
from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt.domain_xml import Domain, Part
from pinner.model.change import PartPin
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Gone, Invalid
from pinner.model.guest.guest import (
    Emulator,
    EmulatorPolicy,
    Guest,
    GuestState,
    IoThread,
    OperatorPin,
    Tap,
    Vcpu,
    dedicated_cpus,
    shared_vcpus,
)
from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.guest.nova import NovaGuest
from pinner.model.run.journal import RecordedPins

ONLINE = "sys/devices/system/cpu/online"


@dataclass(frozen=True, slots=True)
class ActiveDomain:
    """A transient domain has no ``definition``."""

    uuid: str
    name: str
    state: GuestState
    xml: Domain
    definition: Domain | None
    unread: str = ""
    """Why libvirt did not describe the domain; ``xml`` is UNREAD then."""


@dataclass(frozen=True, slots=True)
class DomainDescription:
    uuid: str
    name: str
    state: GuestState
    xml: str
    definition: str | None
    unread: str = ""

    def parsed(self, parse: Callable[[str], Domain] = domain_xml.parse) -> ActiveDomain:
        """Raises Invalid for a CPU list that does not parse."""
        return ActiveDomain(
            uuid=self.uuid,
            name=self.name,
            state=self.state,
            xml=parse(self.xml),
            definition=None if self.definition is None else parse(self.definition),
            unread=self.unread,
        )

    def parsed_or_left_alone(self, parse: Callable[[str], Domain] = domain_xml.parse) -> ActiveDomain:
        try:
            return self.parsed(parse)
        except (etree.XMLSyntaxError, ValueError, Invalid) as error:
            return self.without_xml(str(error)).parsed()

    def without_xml(self, why: str) -> "DomainDescription":
        return replace(self, xml=domain_xml.UNREAD, definition=None, unread=why)


def read_guests(
    root: Path, domains: Iterable[ActiveDomain], processes: qemu.Processes, *, memory: bool = True
) -> tuple[Guest, ...]:
    """Without ``memory``, memory_per_node is read only of guests with huge pages: it takes milliseconds and more."""
    guests, units = [], partitions.UnitReader(root)
    for domain in sorted(domains, key=lambda domain: (domain.name, domain.uuid)):
        try:
            guests.append(read_guest(root, domain, processes, units, memory=memory))
        except Gone:
            continue
    return tuple(guests)


def read_guest(
    root: Path, domain: ActiveDomain, processes: qemu.Processes, units: partitions.UnitReader, *, memory: bool = True
) -> Guest:
    """Raises Gone where QEMU has ended."""
    if (pid := processes.qemus.get(domain.uuid)) is None:
        raise Gone(f"guest {domain.name}")
    xml, unpinned = domain.xml, _unpinned(root, domain.xml)
    resident = qemu.resident(root, pid) if memory or xml.huge_pages or domain.unread else qemu.Resident({}, {})
    roles = qemu.roles(procfs.threads_of(root, pid))
    vcpus = sorted(roles.vcpus) if domain.unread else xml.vcpus
    ids = sorted({*xml.iothreads, *roles.iothreads})
    return Guest(
        uuid=domain.uuid,
        name=domain.name,
        state=domain.state,
        pid=pid,
        vcpus=tuple(Vcpu(id_, roles.vcpus.get(id_), xml.vcpu_pins.get(id_, unpinned)) for id_ in vcpus),
        emulator=Emulator(xml.emulator_pin or unpinned, roles.emulator, _emulator_policy(domain)),
        iothreads=tuple(IoThread(id_, roles.iothreads.get(id_), xml.iothread_pins.get(id_, unpinned)) for id_ in ids),
        vhost_threads=processes.vhost_threads.get(pid, ()),
        memory_kib=sum(resident.per_node.values()) if domain.unread else xml.memory_kib,
        memory_per_node=resident.per_node,
        taps=tuple(_tap(root, tap) for tap in xml.taps),
        pci=xml.pci,
        persistent=domain.definition is not None,
        nova=xml.nova,
        dedicated=_dedicated(domain),
        excluded=xml.excluded,
        cgroups=units.units_of(pid),
        own_pins=tuple(PartPin(kind, part, cpus) for (kind, part), cpus in xml.own_pins.items()),
        operator_pins=tuple(_foreign_pins(root, domain, pid)),
        restriction=_restriction(root, xml),
        unread=domain.unread,
        numa=GuestNuma(xml.cells, xml.memory, resident.huge if xml.huge_pages else {}, cell_pins(domain)),
        shared_vcpus=shared_vcpus(xml.nova, len(xml.vcpus)),
        cpu_limits=units.limits_of(pid),
        topology=xml.topology,
        quotas=xml.quotas,
    )


def binding_pins(guest: Guest, recorded: RecordedPins) -> dict[int, CpuSet]:
    """Pins that Nova wrote, not pinner. With --persist pinner writes the definition. The live pins of a transient guest
    are pinner's once it has placed it."""
    return {
        vcpu: cpus
        for vcpu, cpus in guest.numa.pins.items()
        if (guest.uuid, "vcpu", vcpu, cpus) not in recorded.persisted
        and (guest.persistent or not recorded.has_live(guest.uuid, "vcpu", vcpu))
    }


def without_recorded_pins(guest: Guest, recorded: RecordedPins) -> Guest:
    pins = tuple(
        pin
        for pin in guest.operator_pins
        if (guest.uuid, pin.kind, pin.part, pin.cpus) not in recorded.persisted
        and (pin.written == "definition" or not recorded.has_live(guest.uuid, pin.kind, pin.part))
    )
    return replace(guest, operator_pins=pins, numa=replace(guest.numa, pins=binding_pins(guest, recorded)))


def pinned_by_nova(root: Path, domains: Iterable[ActiveDomain]) -> Iterator[NovaGuest]:
    online = files.cpu_list(root / ONLINE) or CpuSet()
    for domain in domains:
        if _dedicated(domain):
            policy, emulator = _emulator_policy(domain), domain.xml.emulator_pin or CpuSet()
            shared = shared_vcpus(domain.xml.nova, len(domain.xml.vcpus))
            pins = [pin for vcpu, pin in domain.xml.without_own_pins.vcpu_pins.items() if vcpu not in shared]
            cpus = dedicated_cpus(pins, emulator, policy, online)
            yield NovaGuest(domain.uuid, domain.name, cpus, floating=not policy)


def cell_pins(domain: ActiveDomain) -> dict[int, CpuSet]:
    """Nova pins no vCPU of a guest without cells, unless it dedicates CPUs to it."""
    if domain.xml.nova is None or not domain.xml.cells or _dedicated(domain):
        return {}
    return dict(_novas_xml(domain).vcpu_pins)


def _foreign_pins(root: Path, domain: ActiveDomain, pid: int) -> Iterator[OperatorPin]:
    """Pins that restrict a part and that neither Nova nor pinner wrote. Live pins of a migrated guest do not count,
    unless its definition has them: pinner may have written them on the other host."""
    if domain.xml.nova is not None:
        return
    written = domain.definition.pins if domain.definition else {}
    if domain.definition:
        yield from (OperatorPin(*part, cpus, "definition") for part, cpus in _restricting(root, domain.definition))
    live = [(part, cpus) for part, cpus in _restricting(root, domain.xml) if written.get(part) != cpus]
    if live and not qemu.is_incoming(root, pid):
        yield from (OperatorPin(*part, cpus, "live") for part, cpus in live)


def _restricting(root: Path, xml: Domain) -> Iterator[tuple[Part, CpuSet]]:
    unpinned = _unpinned(root, xml)
    return ((part, cpus) for part, cpus in xml.without_own_pins.pins.items() if not unpinned <= cpus)


def _restriction(root: Path, xml: Domain) -> CpuSet:
    """Nova writes its cpu_shared_set there."""
    cpus = CpuSet() if xml.nova else xml.cpuset or CpuSet()
    return CpuSet() if (files.cpu_list(root / ONLINE) or CpuSet()) <= cpus else cpus


def _unpinned(root: Path, xml: Domain) -> CpuSet:
    return xml.cpuset or files.cpu_list(root / ONLINE) or CpuSet()


TAP_COUNTERS = ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped")


def _tap(root: Path, tap: domain_xml.TapDevice) -> Tap:
    """libvirt swaps rx and tx for some kinds, to show the guest's direction."""
    counts = files.counts(root / "sys/class/net" / tap.name / "statistics", TAP_COUNTERS)
    rx, tx, rx_drops, tx_drops = (counts.get(counter, 0) for counter in TAP_COUNTERS)
    return Tap(tap.name, tap.mac, rx, tx, rx_drops, tx_drops, tap.model, tap.rx_queue_size, tap.queues)


def _dedicated(domain: ActiveDomain) -> bool:
    """By Nova's metadata; without extra specs (before Nova 32), by a pin of Nova that gives a vCPU a single CPU."""
    if domain.xml.nova is None:
        return False
    if domain.xml.dedicated or domain.xml.nova.specs_known:
        return domain.xml.dedicated
    return any(len(pin) == 1 for pin in _novas_xml(domain).vcpu_pins.values())


def _emulator_policy(domain: ActiveDomain) -> EmulatorPolicy:
    """By the flavor. Without extra specs by the definition's pins: without a policy Nova pins QEMU's own threads to the
    vCPUs' CPUs, with ``isolate`` to one more."""
    if domain.xml.nova is None or not _dedicated(domain):
        return ""
    if domain.xml.nova.specs_known:
        return domain.xml.nova.emulator_policy
    pin, vcpus = _novas_xml(domain).emulator_pin, union(_novas_xml(domain).vcpu_pins.values())
    if pin is None or pin <= vcpus:
        return ""
    return "isolate" if len(pin) == 1 else "share"


def _novas_xml(domain: ActiveDomain) -> Domain:
    return (domain.definition or domain.xml).without_own_pins
