"""The filter of libvirt's hook script: it removes pinner's pins from a migrating guest's XML, and nothing else."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree
from support.guests.named_pins import ETC, NAMED, PINNED, domain, named, pin

from pinner.host.virt import domain_xml
from pinner.model.change import PartPin
from pinner.model.cpuset import CpuSet
from pinner.model.guest import pins_metadata

LOADER = SourceFileLoader("strip_pins", str(ETC / "libvirt-strip-pins"))
strip_pins = module_from_spec(spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(strip_pins)


def filtered(xml):
    return strip_pins.Filter(xml.encode()).filtered().decode()


def test_pins_that_the_metadata_names_are_removed_with_the_metadata():
    assert filtered(domain("".join(PINNED), "".join(NAMED))) == domain()


@pytest.mark.parametrize("prefix", ["", "pinner:"])
def test_pins_are_removed_as_a_run_names_them(prefix):
    """libvirt gives the element its prefix, and in a guest's XML the children, too."""
    parts = [("vcpu", 0, "0-3"), ("vcpu", 1, "4"), ("emulator", None, "0-1"), ("iothread", 1, "0,2")]
    text = pins_metadata.text_of(PartPin(kind, part, CpuSet.parse(cpus)) for kind, part, cpus in parts)
    children = text.removeprefix("<pins>").removesuffix("</pins>").replace("<pin ", f"<{prefix}pin ")
    assert filtered(domain("".join(PINNED), children)) == domain()


@pytest.mark.parametrize("number", range(4))
def test_a_pin_that_the_metadata_does_not_name_stays(number):
    own = NAMED[:number] + NAMED[number + 1 :]
    assert filtered(domain("".join(PINNED), "".join(own))) == domain(PINNED[number])


@pytest.mark.parametrize(
    ("kind", "part", "cpus"),
    [
        ("vcpu", 0, "0-2"),
        ("vcpu", 0, "0-4"),
        ("vcpu", 2, "0-3"),
        ("iothread", 0, "0-3"),
        ("emulator", None, "0-3"),
        ("emulator", 0, "0-3"),
    ],
)
def test_a_pin_is_pinners_only_if_kind_part_and_cpus_agree(kind, part, cpus):
    """A vCPU that Nova or an operator has pinned since then is not pinner's."""
    assert filtered(domain(PINNED[0], named(kind, part, cpus))) == domain(PINNED[0])


@pytest.mark.parametrize("cpus", ["0-3", "0,1,2,3", "3,0-2", "0-1,1-3", " 0-3 "])
def test_cpus_are_compared_as_sets(cpus):
    assert filtered(domain(pin("vcpu", 0, "0-3"), named("vcpu", 0, cpus))) == domain()


@pytest.mark.parametrize(
    "cpus", ["+4", "\u0664", "0_4", "4-", "-4", "4 -4", "4- 4", "4--4", "04x", "4,+4", "^4", "4,^5"]
)
def test_cpus_that_are_not_written_as_a_list_name_no_pin(cpus):
    """pinner's own reader of the metadata takes no such pin for pinner's."""
    xml = domain(pin("vcpu", 0, "4"), named("vcpu", 0, cpus))
    assert filtered(xml) == domain(pin("vcpu", 0, "4"))


WRITTEN = st.sampled_from(["0-3", "0,2", "4", "8191", "0-1,4"])
SPELLED = st.one_of(WRITTEN, st.text("0134,-+_^ \u0664", max_size=5))
KINDS = st.sampled_from(["vcpu", "iothread", "emulator"])
NUMBERS = st.one_of(st.none(), st.sampled_from(["0", "1", "10", "01", " 1", "+1", "1_0", "-1", "\u0661", ""]))


@given(st.lists(st.tuples(KINDS, st.integers(0, 1), WRITTEN)), st.lists(st.tuples(KINDS, NUMBERS, SPELLED), min_size=1))
@settings(deadline=None)
def test_no_pin_is_removed_that_pinners_own_reader_takes_for_anothers(pins, names):
    pinned = "".join(pin(kind, None if kind == "emulator" else part, cpus) for kind, part, cpus in pins)
    xml = domain(pinned, "".join(named(*each) for each in names))
    others = [each for each in written(xml) if each not in own(xml)]
    assert [each for each in written(filtered(xml)) if each in others] == others


def written(xml):
    return pins_metadata.written(etree.fromstring(xml.encode()))


def own(xml):
    return [each for _, each in pins_metadata.own_elements(etree.fromstring(xml.encode()))]


@pytest.mark.parametrize(
    ("pins", "own"),
    [
        ("<vcpupin vcpu='0' cpuset='1'></vcpupin>", named("vcpu", 0, "1")),
        ('<vcpupin cpuset="1" vcpu="0" other=\'a>b/&gt;\'  />', named("vcpu", 0, "1")),
        ("<vcpupin vcpu='0' cpuset='1'\n/>", "<pinner:pin kind='vcpu' part='0' cpus='1'>text</pinner:pin>"),
        ("<vcpupin vcpu='0' cpuset='1'><!-- > --><x/></vcpupin>", f"<!-- </pins> -->{named('vcpu', 0, '1')}"),
    ],
)
def test_any_spelling_of_an_element_is_cut_as_a_whole(pins, own):
    assert filtered(domain(pins, own)) == domain()


@pytest.mark.parametrize(
    ("mark", "spelled"),
    [
        ("pins xmlns='urn:pinner:pins:1'", "<pin kind='vcpu' part='0' cpus='1'/>"),
        ("p:pins xmlns:p='urn:pinner:pins:1'", "<p:pin kind='vcpu' part='0' cpus='1'/>"),
        ("p:pins xmlns:p='urn:pinner:pins:1'", "<pin kind='vcpu' part='0' cpus='1'/>"),
    ],
)
def test_the_metadata_may_use_any_prefix(mark, spelled):
    """libvirt adds the prefix to the children when it writes the XML."""
    assert filtered(domain(pin("vcpu", 0, "1"), spelled, mark=mark)) == domain()


CELLS = "<memnode cellid='0' mode='strict' nodeset='0'/>"


def with_cells(xml, *, nova=True):
    xml = xml.replace("nodeset='0'/></numatune>", f"nodeset='0'/>{CELLS}</numatune>")
    return xml if nova else xml.replace("openstack.org", "example.org")


def test_pins_of_a_guest_with_numa_cells_are_novas():
    """Nova has written them for the destination. They may equal the pins that pinner made on the source."""
    pinned, own = "".join(PINNED), "".join(NAMED)
    assert filtered(with_cells(domain(pinned, own))) == with_cells(domain(pinned))
    assert filtered(with_cells(domain(pinned, own), nova=False)) == with_cells(domain(), nova=False)


def test_the_mark_of_an_excluded_guest_stays():
    mark = "<pinner:cpus xmlns:pinner='urn:pinner:domain:1' leave='alone'/>"
    assert filtered(domain(pin("vcpu", 0, "1"), named("vcpu", 0, "1"), mark)) == domain(more=mark)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cpus='0-3'", "cpus='0-4000000000'"),
        ("cpus='0-3'", "cpus='" + "9" * 100_000 + "'"),
        ("cpus='0-3'", "cpus=''"),
        ("cpus='0-3'", "cpus='3-0'"),
        ("cpus='0-3'", "cpus='-1'"),
        ("cpus='0-3'", "cpus='0-3,x'"),
        ("cpus='0-3'", ""),
        ("kind='vcpu'", ""),
        ("part='0'", ""),
    ],
)
def test_a_name_that_does_not_parse_names_no_pin(before, after):
    broken = NAMED[0].replace(before, after)
    assert filtered(domain("".join(PINNED[:2]), broken + NAMED[1])) == domain(PINNED[0])


def test_a_pin_that_does_not_parse_is_not_pinners():
    broken = "<vcpupin/><vcpupin vcpu='0'/><vcpupin vcpu='0' cpuset='x'/>"
    assert filtered(domain(broken + PINNED[0], NAMED[0] + "<pinner:pin kind='vcpu' part='0'/>")) == domain(broken)


@pytest.mark.parametrize(
    "xml",
    [
        domain("".join(PINNED)),
        domain("".join(PINNED), "".join(NAMED), mark="p:pins xmlns:p='urn:other' xmlns:pinner='urn:pinner:pins:1'"),
        domain(more=f"<!-- <pinner:pins>{''.join(NAMED)}</pinner:pins> -->", pins="".join(PINNED)),
        domain(more=f"<![CDATA[<pinner:pins>{''.join(NAMED)}</pinner:pins>]]>", pins="".join(PINNED)),
    ],
)
def test_without_pinners_metadata_the_xml_is_the_same(xml):
    assert filtered(xml) == xml


def test_elements_of_the_same_name_elsewhere_stay():
    more = f"<x:pins xmlns:x='urn:x'>{pin('vcpu', 0, '1')}<cputune>{pin('vcpu', 0, '1')}</cputune></x:pins>"
    xml = domain(pin("vcpu", 0, "1"), named("vcpu", 0, "1"), more)
    assert filtered(xml) == domain(more=more)
    pins = f"<pinner:pins xmlns:pinner='urn:pinner:pins:1'>{NAMED[0]}</pinner:pins>"
    outside = domain(PINNED[0]).replace("</domain>", f"{pins}</domain>")
    assert filtered(outside) == outside, "metadata counts only inside <metadata>"


PARTS = st.sampled_from([("vcpu", "0"), ("vcpu", "1"), ("vcpu", "2"), ("iothread", "1"), ("emulator", None)])
SETS = st.frozensets(st.integers(0, 5), min_size=1).map(CpuSet.of)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(PARTS, SETS), st.dictionaries(PARTS, SETS))
def test_all_other_pins_stay(pins, own):
    xml = domain(
        "".join(pin(*part, cpus) for part, cpus in pins.items()),
        "".join(named(*part, cpus) for part, cpus in own.items()),
    )
    left = {part: cpus for part, cpus in pins.items() if own.get(part) != cpus}
    after = filtered(xml)
    assert after == domain("".join(pin(*part, cpus) for part, cpus in left.items()))
    assert domain_xml.parse(after).pins == {
        (kind, None if part is None else int(part)): cpus for (kind, part), cpus in left.items()
    }
