"""pinner's pins in the XML of a saved image are replaced by those before them, and nothing else is changed."""

import pytest
from lxml import etree
from support.values import cpus

from pinner.host.virt import domain_xml
from pinner.model.change import PartPin

pytestmark = pytest.mark.fault(76)

EMULATOR, FIRST, SECOND = (
    PartPin("emulator", None, cpus("0")),
    PartPin("vcpu", 0, cpus("4-7")),
    PartPin("vcpu", 1, cpus("6")),
)
NAMES = "".join(
    f"<pinner:pin {each}/>"
    for each in ("kind='emulator' cpus='0'", "kind='vcpu' part='0' cpus='4-7'", "kind='vcpu' part='1' cpus='6'")
)
PINS = "<vcpupin vcpu='0' cpuset='4-7'/><vcpupin vcpu='1' cpuset='6'/><emulatorpin cpuset='0'/>"
PASSWORD = "<devices><graphics passwd='s3cret'/></devices>"


def image(tune=PINS, names=NAMES, others=""):
    metadata = f"<pinner:pins xmlns:pinner='urn:pinner:pins:1'>{names}</pinner:pins>"
    return f"<domain><name>g</name><metadata>{others}{metadata}</metadata><cputune>{tune}</cputune>{PASSWORD}</domain>"


def same(one, other):
    return etree.canonicalize(one) == etree.canonicalize(other)


def test_an_image_whose_pins_are_all_pinners_is_as_before_the_first_run():
    found = domain_xml.restored(image(), (EMULATOR, FIRST, SECOND), (), ())
    assert same(found, f"<domain><name>g</name>{PASSWORD}</domain>")


def test_a_part_gets_the_pin_that_it_had():
    before = PartPin("vcpu", 0, cpus("1-2"))
    found = domain_xml.restored(image(), (EMULATOR, FIRST, SECOND), (before,), ())
    assert domain_xml.pins_in(found) == (before,)


def test_the_pins_and_names_of_another_run_stay():
    found = domain_xml.restored(image(), (FIRST,), (), (EMULATOR, SECOND))
    assert set(domain_xml.pins_in(found)) == {EMULATOR, SECOND}
    assert domain_xml.named_in(found) == (EMULATOR, SECOND)


@pytest.mark.parametrize("tune", [PINS.replace("4-7", "4-6"), PINS.replace("vcpu='0'", "vcpu='3'")])
def test_a_pin_that_the_metadata_does_not_name_stays(tune):
    found = domain_xml.restored(image(tune), (EMULATOR, FIRST, SECOND), (), ())
    assert len(domain_xml.pins_in(found)) == 1


def test_a_pin_that_equals_pinners_and_is_not_named_stays():
    found = domain_xml.restored(image(names=""), (EMULATOR, FIRST, SECOND), (), ())
    assert domain_xml.pins_in(found) == domain_xml.pins_in(image())


def test_shares_and_the_metadata_of_others_stay():
    shares, others = "<shares>512</shares>", "<app:a xmlns:app='urn:app'>x</app:a>"
    found = domain_xml.restored(image(shares + PINS, others=others), (EMULATOR, FIRST, SECOND), (), ())
    kept = f"<metadata>{others}</metadata><cputune>{shares}</cputune>"
    assert same(found, f"<domain><name>g</name>{kept}{PASSWORD}</domain>")
