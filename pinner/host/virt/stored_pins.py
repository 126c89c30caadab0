"""pinner's pins in the XML of a saved image, which the next start uses (`virsh managedsave`). Pure."""

from collections.abc import Collection

from lxml import etree

from pinner.model.change import PartPin
from pinner.model.guest import pins_metadata

_TAGS = {kind: tag for tag, kind in pins_metadata.PIN_TAGS.items()}
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)


def pins_in(xml: str) -> tuple[PartPin, ...]:
    return pins_metadata.written(_tree(xml))


def named_in(xml: str) -> tuple[PartPin, ...]:
    return pins_metadata.named(_tree(xml))


def restored(xml: str, pins: Collection[PartPin], former: Collection[PartPin], names: Collection[PartPin]) -> str:
    """Each pin of ``pins`` that the metadata names becomes that of ``former``, or is removed if its part had none. The
    metadata then has ``names``."""
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
    """Without pins the element <pinner:pins> is removed."""
    if not names:
        _remove(element)
        return
    element[:] = [etree.Element(f"{{{pins_metadata.NAMESPACE}}}pin", pins_metadata.attributes(pin)) for pin in names]


def _remove(element: etree._Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def _tree(xml: str) -> etree._Element:
    return etree.fromstring(xml, _PARSER)
