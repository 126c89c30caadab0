"""pinner's own pins, as the metadata in a guest's XML names them; docs/nova.md shows the element. A pin is pinner's
only if the element names the same part with the same CPUs. libvirt writes the children with a prefix, which
virDomainGetMetadata omits: the readers accept both. They take elements of lxml and of xml.etree, so that a program
without pinner's dependencies can use them."""

from collections.abc import Iterable, Iterator
from typing import Any

from pinner.model.change import PartPin, overlaid
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.kinds import TargetKind

NAMESPACE = "urn:pinner:pins:1"
PREFIX = "pinner"

Element = Any
"""Of lxml.etree or xml.etree.ElementTree."""

PIN_TAGS: dict[str, TargetKind] = {"emulatorpin": "emulator", "vcpupin": "vcpu", "iothreadpin": "iothread"}
"""libvirt's elements below <cputune>."""

_KINDS: dict[str, TargetKind] = {kind: kind for kind in PIN_TAGS.values()}


def named(domain: Element) -> tuple[PartPin, ...]:
    """Children that are no pin of this format are left out."""
    elements = domain.iterfind(f"metadata/{{{NAMESPACE}}}pins")
    return tuple(pin for element in elements for pin in named_by(element))


def named_by(element: Element) -> Iterator[PartPin]:
    for child in element.iterfind("{*}pin"):
        kind = _KINDS.get(child.get("kind", ""))
        if kind is not None and (pin := _pin(kind, child.get("part"), child.get("cpus"))) is not None:
            yield pin


def own_elements(domain: Element) -> list[tuple[Element, PartPin]]:
    """Pins below <cputune> that the metadata names."""
    names = frozenset(named(domain))
    tune = domain.find("cputune")
    if tune is None or not names:
        return []
    return [(element, pin) for element in tune.iterfind("*") if (pin := _written_pin(element)) in names and pin]


def written(domain: Element) -> tuple[PartPin, ...]:
    tune = domain.find("cputune")
    pins = () if tune is None else (_written_pin(element) for element in tune.iterfind("*"))
    return tuple(pin for pin in pins if pin is not None)


def text_of(pins: Iterable[PartPin]) -> str:
    """For virDomainSetMetadata, which adds prefix and namespace; empty for no pins."""
    listed = ("".join(f' {name}="{value}"' for name, value in attributes(pin).items()) for pin in pins)
    children = "".join(f"<pin{each}/>" for each in listed)
    return f"<pins>{children}</pins>" if children else ""


def restored(now: tuple[PartPin, ...], before: tuple[PartPin, ...], pins: Iterable[PartPin]) -> tuple[PartPin, ...]:
    """The pins after an undo of ``overlaid(before, pins)``: those of ``pins`` still named ``now`` are replaced."""
    pins = tuple(pins)
    if now == overlaid(before, pins):
        return before
    prior = {pin.key: pin for pin in before}
    undone = (prior.get(pin.key) if pin in pins else pin for pin in now)
    return tuple(pin for pin in undone if pin is not None)


def _written_pin(element: Element) -> PartPin | None:
    kind = PIN_TAGS.get(str(element.tag))
    return None if kind is None else _pin(kind, element.get(kind), element.get("cpuset"))


def _pin(kind: TargetKind, part: str | None, cpus: str | None) -> PartPin | None:
    number = int(part) if part and part.isascii() and part.isdecimal() and len(part) < _DIGITS else None
    if (number is None) != (kind == "emulator") or (part is not None and kind == "emulator"):
        return None
    try:
        pinned = CpuSet.parse(cpus or "", "cpus")
    except Invalid:
        return None
    return PartPin(kind, number, pinned) if pinned else None


_DIGITS = 10
"""Numbers of vCPUs and iothreads have fewer."""


def attributes(pin: PartPin) -> dict[str, str]:
    part = {} if pin.part is None else {"part": str(pin.part)}
    return {"kind": pin.kind, **part, "cpus": str(pin.cpus)}
