"""Reduces libvirt's domain XML to the parts that pinner reads, for a captured machine. Pure.

Everything else is left out: disks, graphics with their passwords, command lines, firmware, serial numbers, titles.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from pinner.host.virt.domain_xml import NOVA, PINNER
from pinner.model.guest import pins_metadata

_KEPT = (
    *("name", "uuid", "memory", "currentMemory", "vcpu", "vcpus", "iothreads", "iothreadids"),
    *("cputune", "numatune", "memoryBacking", "cpu"),
)
"""Elements that have only sizes, numbers and CPUs, and the identity of the guest."""
_NAMES = ("name", "owner")
"""Elements of Nova's metadata that name the guest, its project or its user."""


@dataclass(frozen=True, slots=True)
class Alias:
    """The name and the UUID that a scrubbed guest has."""

    name: str
    uuid: str


def reduced(xml: str, alias: Alias | None = None) -> str:
    """The XML with the parts that pinner reads; with an ``alias`` also without names, taps and users.

    Raises etree.XMLSyntaxError.
    """
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
    """The topology in the host's capabilities, without identities. Raises etree.XMLSyntaxError."""
    found = etree.fromstring(xml.encode(), etree.XMLParser(resolve_entities=False, no_network=True))
    result = etree.Element("capabilities")
    etree.SubElement(result, "host").extend(found.findall("host/topology"))
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
    """The taps, and the PCI addresses of devices that are passed through."""
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
