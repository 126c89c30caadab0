"""A guest put together from libvirt's XML, /proc and the taps' own counters."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pinner.host import cgroups, files, procfs, qemu
from pinner.host.domain_xml import Domain
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Gone
from pinner.model.guest import Emulator, EmulatorPolicy, Guest, GuestState, IoThread, Tap, Vcpu, dedicated_cpus
from pinner.model.nova import NovaGuest


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
        emulator=Emulator(xml.emulator_pin or everywhere, roles.emulator, _emulator_policy(domain)),
        iothreads=tuple(
            IoThread(id_, roles.iothreads.get(id_), xml.iothread_pins.get(id_, everywhere))
            for id_ in sorted({*xml.iothreads, *roles.iothreads})
        ),
        vhost_threads=processes.vhost_threads.get(pid, ()),
        memory_kib=xml.memory_kib,
        memory_per_node=qemu.memory_per_node(root, pid),
        taps=tuple(_tap(root, name, mac) for name, mac in xml.taps),
        pci=xml.pci,
        persistent=domain.definition is not None,
        nova=xml.nova,
        dedicated=_dedicated(domain),
        excluded=xml.excluded,
        cgroups=cgroups.units_of(root, pid),
    )


def pinned_by_nova(root: Path, domains: Iterable[ActiveDomain]) -> Iterator[NovaGuest]:
    """Those that Nova pinned, by what libvirt says alone."""
    online = files.cpu_list(root / "sys/devices/system/cpu/online") or CpuSet()
    for domain in domains:
        if _dedicated(domain):
            policy, emulator = _emulator_policy(domain), domain.xml.emulator_pin or CpuSet()
            cpus = dedicated_cpus(domain.xml.vcpu_pins.values(), emulator, policy, online)
            yield NovaGuest(domain.uuid, domain.name, cpus, floating=not policy)


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
    return domain.xml.dedicated or any(len(pin) == 1 for pin in _defined(domain).vcpu_pins.values())


def _emulator_policy(domain: ActiveDomain) -> EmulatorPolicy:
    """Where Nova pins QEMU's own threads, by the flavor, or where that is not told by the definition: without a policy
    Nova pins them to the CPUs of the vCPUs, and with ``isolate`` to one more."""
    if domain.xml.nova is None or not _dedicated(domain):
        return ""
    if domain.xml.nova.extra_specs:
        return domain.xml.nova.emulator_policy
    pin, vcpus = _defined(domain).emulator_pin, union(_defined(domain).vcpu_pins.values())
    if pin is None or pin <= vcpus:
        return ""
    return "isolate" if len(pin) == 1 else "share"


def _defined(domain: ActiveDomain) -> Domain:
    """What Nova wrote: the live domain has pinner's pins."""
    return domain.definition or domain.xml
