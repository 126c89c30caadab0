"""The element that names pinner's pins: what it says, what agrees with it, and hostile contents."""

from xml.etree import ElementTree

import pytest
from lxml import etree
from support.values import cpus

from pinner.model.change import PartPin, overlaid
from pinner.model.guest.pins_metadata import named, own_elements, restored, text_of

pytestmark = pytest.mark.fault(76)

EMULATOR = PartPin("emulator", None, cpus("0-1"))
VCPU = PartPin("vcpu", 3, cpus("2,4-5"))
IOTHREAD = PartPin("iothread", 1, cpus("0"))
ALL = (EMULATOR, VCPU, IOTHREAD)

LIBRARIES = pytest.mark.parametrize("parse", [etree.fromstring, ElementTree.fromstring], ids=["lxml", "xml.etree"])


def xml(children: str, tune: str = "", prefix: str = "") -> str:
    children = children.replace("<pin", f"<{prefix}pin")
    return (
        f'<domain><metadata><pinner:pins xmlns:pinner="urn:pinner:pins:1">{children}</pinner:pins></metadata>'
        f"<cputune><shares>1</shares>{tune}</cputune></domain>"
    )


@LIBRARIES
@pytest.mark.parametrize("prefix", ["", "pinner:"], ids=["as written", "as libvirt prints it"])
def test_what_is_written_is_read_again(parse, prefix):
    children = text_of(ALL).removeprefix("<pins>").removesuffix("</pins>")
    assert named(parse(xml(children, prefix=prefix))) == ALL


def test_no_pins_are_no_element():
    assert text_of(()) == ""
    assert named(etree.fromstring("<domain/>")) == ()


@LIBRARIES
@pytest.mark.parametrize(
    ("tune", "own"),
    [
        ('<emulatorpin cpuset="0-1"/><vcpupin vcpu="3" cpuset="2,4-5"/><iothreadpin iothread="1" cpuset="0"/>', ALL),
        ('<vcpupin vcpu="3" cpuset="5,2,4"/>', (VCPU,)),
        ('<vcpupin vcpu="3" cpuset="2,4"/>', ()),
        ('<vcpupin vcpu="2" cpuset="2,4-5"/>', ()),
        ('<iothreadpin iothread="3" cpuset="2,4-5"/>', ()),
        ('<emulatorpin cpuset="0"/><iothreadpin iothread="1" cpuset="0"/>', (IOTHREAD,)),
        ('<vcpupin vcpu="3" cpuset="many"/><vcpupin cpuset="2"/><vcpupin vcpu="x" cpuset="2"/><memory/>', ()),
        ("", ()),
    ],
)
def test_a_pin_is_pinners_only_if_kind_part_and_cpus_agree(parse, tune, own):
    children = text_of(ALL).removeprefix("<pins>").removesuffix("</pins>")
    found = own_elements(parse(xml(children, tune)))
    assert {pin for _, pin in found} == set(own)
    assert {element.tag for element, _ in found} == {f"{pin.kind}pin" for pin in own}


@LIBRARIES
@pytest.mark.parametrize(
    "child",
    [
        "<pin/>",
        '<pin kind="vcpu" cpus="1"/>',
        '<pin kind="emulator" part="0" cpus="1"/>',
        '<pin kind="process" part="1" cpus="1"/>',
        '<pin kind="vcpu" part="-1" cpus="1"/>',
        '<pin kind="vcpu" part="99999999999999999999" cpus="1"/>',
        '<pin kind="vcpu" part="²" cpus="1"/>',
        '<pin kind="vcpu" part="1" cpus=""/>',
        '<pin kind="vcpu" part="1" cpus="0-4000000000"/>',
        '<pin kind="vcpu" part="1" cpus="a"/>',
        '<other kind="vcpu" part="1" cpus="1"/>',
        '<pins><pin kind="vcpu" part="1" cpus="1"/></pins>',
    ],
)
def test_a_child_that_is_no_pin_names_nothing(parse, child):
    assert named(parse(xml(child))) == ()
    mine = text_of((VCPU,)).removeprefix("<pins>").removesuffix("</pins>")
    assert named(parse(xml(child + mine))) == (VCPU,)


def test_an_element_of_another_namespace_names_nothing():
    assert named(etree.fromstring(xml('<pin kind="emulator" cpus="1"/>').replace("pins:1", "pins:2"))) == ()


def vcpu(number: int, text: str) -> PartPin:
    return PartPin("vcpu", number, cpus(text))


@pytest.mark.parametrize(
    ("before", "pins"),
    [((), ALL), ((VCPU,), (EMULATOR,)), ((vcpu(0, "1"), vcpu(1, "1")), (vcpu(1, "2"),)), (ALL, ALL), (ALL, ())],
)
def test_an_undo_gives_the_names_from_before(before, pins):
    after = overlaid(before, pins)
    assert len({(pin.kind, pin.part) for pin in after}) == len(after)
    assert set(pins) <= set(after)
    assert restored(after, before, pins) == before


def test_an_undo_leaves_the_names_of_a_later_run_and_of_a_guest_that_was_started_anew():
    assert restored((EMULATOR, vcpu(0, "3")), (), (vcpu(0, "2"), EMULATOR)) == (vcpu(0, "3"),)
    assert restored((), (VCPU,), (EMULATOR,)) == ()
    assert restored((vcpu(0, "2"), vcpu(1, "2")), (vcpu(0, "5"),), (vcpu(0, "2"),)) == (vcpu(0, "5"), vcpu(1, "2"))
