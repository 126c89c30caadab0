"""Parses libvirt's domain XML (https://libvirt.org/formatdomain.html) and Nova's metadata, and writes pins. Pure.
libvirt's API returns these facts only after QEMU has answered, or never."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lxml import etree

from pinner.model.change import PartPin, Target
from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import shown
from pinner.model.guest import pins_metadata
from pinner.model.guest.guest import DEDICATING, NovaIdentity
from pinner.model.guest.guest_numa import STRICT, GuestCell, GuestTopology, MemoryBinding
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import DEFAULT_PERIOD_US, CpuQuota

NOVA = ("http://openstack.org/xmlns/libvirt/nova/1.1", "http://openstack.org/xmlns/libvirt/nova/1.0")
"""The newest namespace comes first."""

PINNER = "urn:pinner:domain:1"
"""The namespace of pinner's mark of an excluded guest. pinner's pins have another one (pins_metadata)."""
EXCLUDED = "<cpus leave='alone'/>"

UNREAD = f"<domain><metadata><cpus xmlns='{PINNER}' leave='alone'/></metadata></domain>"
"""The XML of a guest that libvirt cannot describe: pinner leaves it alone."""

Part = tuple[TargetKind, int | None]
"""The kind, and the number of the vCPU or iothread."""

_MAX_RING = 1 << 16
_PINS = {"emulator": "emulatorpin", "vcpu": "vcpupin", "iothread": "iothreadpin"}
_PART = {"vcpu": "vcpu", "iothread": "iothread"}


class TapDevice(NamedTuple):
    name: str
    """On the host."""
    mac: str
    model: str
    rx_queue_size: int
    queues: int


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain's XML. A part without a pin may run on the CPUs of ``cpuset``."""

    memory_kib: int
    vcpus: tuple[int, ...]
    """The unplugged vCPUs are among them."""
    cpuset: CpuSet | None
    vcpu_pins: Mapping[int, CpuSet]
    emulator_pin: CpuSet | None
    iothreads: tuple[int, ...]
    iothread_pins: Mapping[int, CpuSet]
    taps: tuple[TapDevice, ...]
    pci: tuple[str, ...]
    nova: NovaIdentity | None
    own_pins: Mapping[Part, CpuSet]
    """Those of ``pins`` that are pinner's, by its metadata."""
    excluded: bool
    dedicated: bool
    """Whether flavor or image request dedicated CPUs."""
    user: str
    """A name, or + and an id; empty where libvirt does not choose one."""
    cells: tuple[GuestCell, ...] = ()
    memory: MemoryBinding | None = None
    huge_pages: bool = False
    topology: GuestTopology | None = None
    quotas: Mapping[str, CpuQuota] = field(default_factory=dict)

    @property
    def without_own_pins(self) -> "Domain":
        return replace(
            self,
            vcpu_pins={vcpu: cpus for vcpu, cpus in self.vcpu_pins.items() if ("vcpu", vcpu) not in self.own_pins},
            emulator_pin=None if ("emulator", None) in self.own_pins else self.emulator_pin,
            iothread_pins={
                id_: cpus for id_, cpus in self.iothread_pins.items() if ("iothread", id_) not in self.own_pins
            },
            own_pins={},
        )

    def pin_of(self, kind: TargetKind, part: int | None) -> CpuSet | None:
        match kind, part:
            case "vcpu", int(part):
                return self.vcpu_pins.get(part)
            case "iothread", int(part):
                return self.iothread_pins.get(part)
        return self.emulator_pin

    @property
    def pins(self) -> dict[Part, CpuSet]:
        by_part: dict[Part, CpuSet] = {("vcpu", vcpu): cpus for vcpu, cpus in self.vcpu_pins.items()}
        by_part |= {("iothread", thread): cpus for thread, cpus in self.iothread_pins.items()}
        return by_part if self.emulator_pin is None else {("emulator", None): self.emulator_pin, **by_part}


def parse(xml: str) -> Domain:
    """Raises Invalid for a CPU list that does not parse, and ValueError for a number that does not."""
    domain = _tree(xml)
    vcpu = domain.find("vcpu")
    cpuset = None if vcpu is None else vcpu.get("cpuset")
    emulator = domain.find("cputune/emulatorpin")
    identity, dedicated = _nova(domain)
    return Domain(
        memory_kib=_number(domain.findtext("memory", "0")),
        vcpus=tuple(range(_number(domain.findtext("vcpu", "0"), MAX_CPUS))),
        cpuset=None if cpuset is None else CpuSet.parse(cpuset, "vcpu cpuset"),
        vcpu_pins=_pins(domain, "vcpu"),
        emulator_pin=None if emulator is None else CpuSet.parse(emulator.get("cpuset", ""), "emulatorpin"),
        iothreads=_iothreads(domain),
        iothread_pins=_pins(domain, "iothread"),
        taps=tuple(_taps(domain)),
        pci=tuple(_pci_address(source) for source in domain.iterfind("devices/*/source/address[@slot]")),
        nova=identity,
        own_pins={pin.key: pin.cpus for _, pin in pins_metadata.own_elements(domain)},
        excluded=domain.find(f"metadata/{{{PINNER}}}cpus[@leave='alone']") is not None,
        dedicated=dedicated,
        user=domain.findtext("seclabel[@model='dac']/label", "").partition(":")[0],
        cells=cells(domain),
        memory=memory(domain),
        huge_pages=has_huge_pages(domain),
        topology=_topology(domain),
        quotas=dict(_quotas(domain)),
    )


def named_pins(element: str) -> tuple[PartPin, ...]:
    return tuple(pins_metadata.named_by(_tree(element)))


def without_named_pins(xml: str) -> str:
    domain = _tree(xml)
    for metadata in domain.findall("metadata"):
        for element in metadata.findall(f"{{{pins_metadata.NAMESPACE}}}pins"):
            metadata.remove(element)
        if not len(metadata):
            domain.remove(metadata)
    return etree.tostring(domain, encoding="unicode")


def cputune(xml: str) -> str:
    """Empty where there is none."""
    element = _tree(xml).find("cputune")
    return "" if element is None else etree.tostring(element, encoding="unicode", with_tail=False)


def with_pin_of(xml: str, target: Target, definition: str) -> str:
    """``definition`` is a <cputune> or empty: without a pin there, the target's pin is removed."""
    domain = _tree(xml)
    tune = domain.find("cputune")
    if tune is None:
        tune = etree.SubElement(domain, "cputune")
    for element in tune.findall(_pin_path(target)):
        tune.remove(element)
    saved = _tree(definition) if definition else etree.Element("cputune")
    tune.extend(saved.findall(_pin_path(target)))
    if not len(tune):
        domain.remove(tune)
    return etree.tostring(domain, encoding="unicode")


def pin_in(xml: str, target: Target) -> CpuSet | None:
    """``xml`` is a domain's XML, a <cputune> of it, or empty."""
    if not xml:
        return None
    root = _tree(xml)
    pin = root.find(_pin_path(target) if root.tag == "cputune" else f"cputune/{_pin_path(target)}")
    return None if pin is None else CpuSet.parse(pin.get("cpuset", ""), _PINS[target.kind])


def _tree(xml: str) -> etree._Element:
    return etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True))


def _pin_path(target: Target) -> str:
    part = f"[@{_PART[target.kind]}='{target.part}']" if target.kind in _PART else ""
    return _PINS[target.kind] + part


def _number(text: str, most: int = 2**64 - 1) -> int:
    """A captured file's numbers may have any length."""
    number = int(text)
    if not 0 <= number <= most:
        raise ValueError(f"{shown(text)} is not a number from 0 to {most}")
    return number


def _pins(domain: etree._Element, kind: str) -> dict[int, CpuSet]:
    elements = domain.iterfind(f"cputune/{_PINS[kind]}")
    return {_number(pin.get(_PART[kind], "")): CpuSet.parse(pin.get("cpuset", ""), _PINS[kind]) for pin in elements}


def _iothreads(domain: etree._Element) -> tuple[int, ...]:
    """libvirt lists the ids only if they are not 1, 2, ..."""
    listed = tuple(_number(thread.get("id", "")) for thread in domain.iterfind("iothreadids/iothread"))
    return listed or tuple(range(1, _number(domain.findtext("iothreads", "0"), MAX_CPUS) + 1))


def _taps(domain: etree._Element) -> Iterator[TapDevice]:
    for interface in domain.iterfind("devices/interface"):
        paths = ("target/@dev", "mac/@address", "model/@type", "driver/@rx_queue_size", "driver/@queues")
        name, mac, model, size, queues = (str(interface.xpath(f"string({path})")) for path in paths)
        if name:
            yield TapDevice(name, mac, model, _number(size or "0", _MAX_RING), _number(queues or "0", MAX_CPUS))


def _pci_address(address: etree._Element) -> str:
    domain, bus, slot, function = (int(address.get(name, "0"), 16) for name in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _nova(domain: etree._Element) -> tuple[NovaIdentity | None, bool]:
    instances = (domain.find(f"metadata/{{{namespace}}}instance") for namespace in NOVA)
    instance = next((element for element in instances if element is not None), None)
    if instance is None:
        return None, False
    identity = _identity(instance)
    of_image = _named(instance, "{*}image/{*}properties/{*}property")
    return identity, identity.dedicates or of_image.get("hw_cpu_policy") in DEDICATING


def _identity(instance: etree._Element) -> NovaIdentity:
    flavor = instance.find("{*}flavor")
    return NovaIdentity(
        instance=instance.findtext("{*}name", ""),
        project=instance.findtext("{*}owner/{*}project", ""),
        user=instance.findtext("{*}owner/{*}user", ""),
        flavor="" if flavor is None else flavor.get("name", ""),
        extra_specs=_named(instance, "{*}flavor/{*}extraSpecs/{*}extraSpec"),
        flavor_id="" if flavor is None else flavor.get("id", ""),
        has_specs=instance.find("{*}flavor/{*}extraSpecs") is not None,
    )


def _named(instance: etree._Element, path: str) -> dict[str, str]:
    return {name: element.text or "" for element in instance.iterfind(path) if (name := element.get("name"))}


def cells(domain: etree._Element) -> tuple[GuestCell, ...]:
    """Raises Invalid."""
    nodes = {
        number: binding
        for memnode in domain.iterfind("numatune/memnode")
        if (binding := _binding(memnode)) and (number := memnode.get("cellid", "")).isdecimal()
    }
    return tuple(
        _cell(cell, cell.get("id", str(position)), nodes)
        for position, cell in enumerate(domain.iterfind("cpu/numa/cell"))
    )


def memory(domain: etree._Element) -> MemoryBinding | None:
    """None where the XML names no node (placement auto). Raises Invalid."""
    element = domain.find("numatune/memory")
    return None if element is None else _binding(element)


def _topology(domain: etree._Element) -> GuestTopology | None:
    element = domain.find("cpu/topology")
    if element is None:
        return None
    names = ("sockets", "dies", "clusters", "cores", "threads")
    sockets, dies, clusters, cores, threads = (_number(element.get(name, "1"), MAX_CPUS) for name in names)
    found = GuestTopology(sockets, dies * clusters * cores, threads)
    return found if 0 < found.sockets * found.cores * found.threads <= MAX_CPUS else None


def _quotas(domain: etree._Element) -> Iterator[tuple[str, CpuQuota]]:
    """A quota below 1 is no limit; without a period it is the kernel's."""
    for name in ("vcpu", "global", "emulator", "iothread"):
        prefix = "" if name == "vcpu" else f"{name}_"
        quota, period = (domain.findtext(f"cputune/{prefix}{which}", "0") for which in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and 0 < int(quota) < 1 << 63:
            yield f"{name}_quota", CpuQuota(int(quota), int(period) or DEFAULT_PERIOD_US)


def has_huge_pages(domain: etree._Element) -> bool:
    return domain.find("memoryBacking/hugepages") is not None


def _cell(cell: etree._Element, number: str, nodes: dict[str, MemoryBinding]) -> GuestCell:
    vcpus = CpuSet.parse(cell.get("cpus", ""), "cpu numa cell")
    return GuestCell(_number(number), vcpus, _number(cell.get("memory", "0")), nodes.get(number))


def _binding(element: etree._Element) -> MemoryBinding | None:
    nodes = CpuSet.parse(element.get("nodeset", ""), "numatune nodeset")
    return MemoryBinding(element.get("mode", STRICT), tuple(nodes)) if nodes else None


_TAGS = {kind: tag for tag, kind in pins_metadata.PIN_TAGS.items()}


def pins_in(xml: str) -> tuple[PartPin, ...]:
    return pins_metadata.written(_tree(xml))


def named_in(xml: str) -> tuple[PartPin, ...]:
    return pins_metadata.named(_tree(xml))


def restored(xml: str, pins: Collection[PartPin], former: Collection[PartPin], names: Collection[PartPin]) -> str:
    """The XML of a saved image (`virsh managedsave`): each pin of ``pins`` that the metadata names becomes that of
    ``former``, or goes. The metadata then has ``names``."""
    domain = _tree(xml)
    before = {pin.key: pin for pin in former}
    for element, pin in pins_metadata.own_elements(domain):
        if pin not in pins:
            continue
        if earlier := before.get(pin.key):
            element.set("cpuset", str(earlier.cpus))
        else:
            _remove(element)
    for metadata in domain.findall("metadata"):
        for element in metadata.findall(f"{{{pins_metadata.NAMESPACE}}}pins"):
            _rename(element, names)
    for name in ("cputune", "metadata"):
        for element in domain.findall(name):
            if not len(element):
                _remove(element)
    return etree.tostring(domain, encoding="unicode")


def _rename(element: etree._Element, names: Collection[PartPin]) -> None:
    if not names:
        _remove(element)
        return
    element[:] = [etree.Element(f"{{{pins_metadata.NAMESPACE}}}pin", pins_metadata.attributes(pin)) for pin in names]


def _remove(element: etree._Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)
