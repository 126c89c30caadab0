"""A guest put together from libvirt's XML, /proc and the taps' own counters."""

from dataclasses import dataclass
from pathlib import Path

from pinner.host import cgroups, files, procfs, qemu
from pinner.host.domain_xml import Domain
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone
from pinner.model.guest import Emulator, Guest, GuestState, IoThread, Tap, Vcpu


@dataclass(frozen=True, slots=True)
class ActiveDomain:
    """What libvirt says of an active domain; ``definition`` is the one that outlives a shutdown, if it has one."""

    uuid: str
    name: str
    state: GuestState
    xml: Domain
    definition: Domain | None


def read_guest(root: Path, domain: ActiveDomain, processes: qemu.Processes) -> Guest:
    """The guest with its threads, memory and taps as they are below ``root``. Raises Gone where QEMU has ended."""
    pid = processes.qemus.get(domain.uuid)
    if pid is None:
        raise Gone(f"guest {domain.name}")
    xml = domain.xml
    roles = qemu.roles(procfs.threads_of(root, pid))
    everywhere = xml.cpuset or files.cpu_list(root / "sys/devices/system/cpu/online") or CpuSet()
    return Guest(
        uuid=domain.uuid,
        name=domain.name,
        state=domain.state,
        pid=pid,
        vcpus=tuple(Vcpu(id_, roles.vcpus.get(id_), xml.vcpu_pins.get(id_, everywhere)) for id_ in xml.vcpus),
        emulator=Emulator(xml.emulator_pin or everywhere, roles.emulator),
        iothreads=tuple(
            IoThread(id_, roles.iothreads.get(id_), xml.iothread_pins.get(id_, everywhere))
            for id_ in sorted({*xml.iothreads, *roles.iothreads})
        ),
        helpers=processes.helpers.get(pid, ()),
        memory_kib=xml.memory_kib,
        memory_per_node=qemu.memory_per_node(root, pid),
        taps=tuple(_tap(root, name, mac) for name, mac in xml.taps),
        pci=xml.pci,
        persistent=domain.definition is not None,
        nova=xml.nova,
        dedicated=_dedicated(domain),
        exempt=xml.exempt,
        cgroups=cgroups.units_of(root, pid),
    )


def _tap(root: Path, name: str, mac: str) -> Tap:
    """The counters of the interface itself: libvirt's are swapped for some kinds, to tell them as the guest does."""
    counters = root / "sys/class/net" / name / "statistics"
    rx_packets, tx_packets, rx_drops, tx_drops = (
        files.number(counters / counter) or 0 for counter in ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped")
    )
    return Tap(name, mac, rx_packets, tx_packets, rx_drops, tx_drops)


def _dedicated(domain: ActiveDomain) -> bool:
    """Whether Nova dedicates CPUs to it: its metadata says so, or its definition pins a vCPU to a single CPU."""
    if domain.xml.nova is None:
        return False
    defined = domain.definition or domain.xml
    return domain.xml.dedicated or any(len(pin) == 1 for pin in defined.vcpu_pins.values())
