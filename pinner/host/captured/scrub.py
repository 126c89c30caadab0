"""Removes names that identify a captured machine's users, guests or programs. Pure. Kernel threads, QEMU's executable
and thread names stay; so do the names, and the values that pinner reads, of the kernel's command line. A user id only
says whether it is root's."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import PurePath
from types import MappingProxyType

from lxml import etree

from pinner.host.kernel import procfs
from pinner.host.kernel.files import decode
from pinner.host.processes import qemu
from pinner.host.processes.immovable import is_qemu
from pinner.host.virt.domain_xml import NOVA, PINNER
from pinner.model.guest import pins_metadata

_ARGUMENTS = frozenset({b"isolcpus", b"maxcpus", b"nohz", b"nohz_full", b"nosmt", b"numa", b"rcu_nocbs"})
_CGROUPS = frozenset({b"cgroup", b"cgroup2", b"cpuset"})
_NUMBERS = re.compile(rb"(N\d+|kernelpagesize_kB)=\d+")
_STATUS = (b"Uid:", b"Cpus_allowed", b"Mems_allowed")
_NOBODY = b"65534"


@dataclass(frozen=True, slots=True)
class Alias:
    name: str
    uuid: str


class Scrubber:
    """The same unit gets the same new name each time."""

    def __init__(self, guests: Mapping[str, Alias] = MappingProxyType({})) -> None:
        self._guests = guests
        self._numbers = count(1)
        self._units: dict[str, str] = {"": ""}
        self._qemus: set[str] = set()

    def scrubbed(self, name: PurePath, data: bytes) -> bytes | None:
        """``name`` is below the root. None: must not be saved. A process's ``cmdline`` comes before its other files."""
        match name.parts:
            case ("proc", "cmdline"):
                for_kernel = takewhile(lambda argument: argument != b"--", data.split())
                return b" ".join(map(_argument, for_kernel)) + b"\n"
            case ("proc", "mounts"):
                return b"".join(line for line in data.splitlines(keepends=True) if line.split(b" ")[2] in _CGROUPS)
            case ("proc", pid, file) if pid.isdecimal():
                return self._of_process(pid, file, data)
            case ("proc", pid, "task", tid, file):
                return self._of_thread(pid, f"process-{pid}" if tid == pid else f"thread-{tid}", file, data)
            case ("sys", "class", "net", _, "mtu") | ("sys", "class", "net", _, "statistics", _):
                # This is the only file of an interface without a device: a tap, whose name contains the guest's port.
                return None
        return data

    def _of_process(self, pid: str, file: str, data: bytes) -> bytes:
        match file:
            case "cmdline":
                executable = decode(data).partition("\0")[0]
                if is_qemu(executable):
                    self._qemus.add(pid)
                    alias = self._guests.get(qemu.uuid_of(data))
                    words = (executable.rpartition("/")[2], *(("-uuid", alias.uuid) if alias else ()))
                    return "".join(f"{word}\0" for word in words).encode()
                return f"process-{pid}\0".encode() if data else b""
            case "cgroup":
                return f"0::/{self._unit(procfs.parse_unit(data))}\n".encode()
            case "numa_maps":
                lines = (filter(_NUMBERS.fullmatch, line.split()) for line in data.splitlines())
                return b"".join(b" ".join(line) + b"\n" for line in lines)
        return self._of_thread(pid, f"process-{pid}", file, data)

    def _of_thread(self, pid: str, name: str, file: str, data: bytes) -> bytes:
        match file:
            case "stat" if pid not in self._qemus and not procfs.parse_stat(data).flags & procfs.PF_KTHREAD:
                return data[: data.index(b"(") + 1] + name.encode() + data[data.rindex(b")") :]
            case "status":
                lines = map(_without_user, data.splitlines(keepends=True))
                return b"\n" + b"".join(line for line in lines if line.startswith(_STATUS))
        return data

    def _unit(self, unit: str) -> str:
        if unit not in self._units:
            kind = unit.rpartition(".")[2]
            suffix = f".{kind}" if kind in ("service", "scope") else ""
            self._units[unit] = f"unit-{next(self._numbers)}{suffix}"
        return self._units[unit]


def _without_user(line: bytes) -> bytes:
    if not line.startswith(b"Uid:"):
        return line
    ids = (user if user == b"0" else _NOBODY for user in line.split()[1:])
    return b"Uid:\t" + b"\t".join(ids) + b"\n"


def _argument(argument: bytes) -> bytes:
    name, equals, _ = argument.partition(b"=")
    return argument if name.replace(b"-", b"_") in _ARGUMENTS else name + equals


_KEPT = (
    *("name", "uuid", "memory", "currentMemory", "vcpu", "vcpus", "iothreads", "iothreadids"),
    *("cputune", "numatune", "memoryBacking", "cpu"),
)
_NAMES = ("name", "owner")


def reduced(xml: str, alias: Alias | None = None) -> str:
    """The parts that pinner reads. Raises etree.XMLSyntaxError."""
    domain = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True))
    result = etree.Element("domain")
    for child in domain.iterchildren(etree.Element):
        result.extend(_parts(child, alias))
    if alias:
        for tag, value in (("name", alias.name), ("uuid", alias.uuid)):
            for element in result.iterfind(tag):
                element.text = value
    return etree.tostring(result, encoding="unicode")


def capabilities(xml: str) -> str:
    """Raises etree.XMLSyntaxError."""
    host_xml = etree.fromstring(xml.encode(), etree.XMLParser(resolve_entities=False, no_network=True))
    result = etree.Element("capabilities")
    etree.SubElement(result, "host").extend(host_xml.findall("host/topology"))
    return etree.tostring(result, encoding="unicode")


def _parts(child: etree._Element, alias: Alias | None) -> Iterator[etree._Element]:
    match child.tag:
        case tag if tag in _KEPT:
            yield child
        case "seclabel" if child.get("model") == "dac" and not alias:
            yield child
        case "metadata":
            yield _metadata(child, alias)
        case "devices":
            yield _devices(child, alias)


def _metadata(metadata: etree._Element, alias: Alias | None) -> etree._Element:
    result = etree.Element("metadata")
    for child in metadata.iterchildren(etree.Element):
        name = etree.QName(child)
        if name.namespace in (PINNER, pins_metadata.NAMESPACE):
            result.append(child)
        elif name.namespace in NOVA and name.localname == "instance":
            result.append(_without_names(child) if alias else child)
    return result


def _without_names(instance: etree._Element) -> etree._Element:
    for name in _NAMES:
        for element in instance.findall(f"{{*}}{name}"):
            instance.remove(element)
    for flavor in instance.iterfind("{*}flavor"):
        flavor.attrib.pop("name", "")
    return instance


def _devices(devices: etree._Element, alias: Alias | None) -> etree._Element:
    result = etree.Element("devices")
    for device in devices.iterchildren(etree.Element):
        kept = etree.Element(device.tag)
        if device.tag == "interface" and not alias:
            kept.extend(element for tag in ("mac", "target") for element in device.findall(tag))
        for address in device.findall("source/address[@slot]"):
            etree.SubElement(kept, "source").append(address)
        if len(kept):
            result.append(kept)
    return result
