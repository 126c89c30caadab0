"""The NUMA parts of a domain's XML: cells, numatune, huge pages; and where /proc shows the huge pages."""

from dataclasses import replace

import pytest
from support.hosts import cpus, guest

from pinner import codec
from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, binding_pins, cell_pins, without_recorded_pins
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Guest
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, GuestTopology, MemoryBinding
from pinner.model.run.journal import RecordedPins

NUMA = "<cpu><numa><cell id='0' cpus='0-1' memory='4096' unit='KiB'/><cell id='1' cpus='2,5' memory='8'/></numa></cpu>"
PINS = "<cputune><vcpupin vcpu='0' cpuset='0-7'/><vcpupin vcpu='1' cpuset='0-7'/></cputune>"
METADATA = (
    '<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:flavor name="m1">'
    "{specs}</nova:flavor></nova:instance></metadata>"
)


def parse(*parts: str) -> domain_xml.Domain:
    return domain_xml.parse(f"<domain><vcpu>2</vcpu>{''.join(parts)}</domain>")


def test_cells_with_the_nodes_of_their_memory():
    memory = "<memory mode='interleave' nodeset='0-1,3'/><memnode cellid='1' mode='strict' nodeset='3'/>"
    tune = f"<numatune>{memory}</numatune>"
    domain = parse(NUMA, tune)
    assert domain.cells == (
        GuestCell(0, cpus("0-1"), 4096),
        GuestCell(1, cpus("2,5"), 8, MemoryBinding("strict", (3,))),
    )
    assert domain.memory == MemoryBinding("interleave", (0, 1, 3))


@pytest.mark.parametrize(
    ("xml", "binding"),
    [
        ("", None),
        ("<numatune/>", None),
        ("<numatune><memory mode='strict' placement='auto'/></numatune>", None),
        ("<numatune><memory nodeset='1'/></numatune>", MemoryBinding("strict", (1,))),
        (
            "<numatune><memory mode='preferred' placement='static' nodeset='1'/></numatune>",
            MemoryBinding("preferred", (1,)),
        ),
        ("<numatune><memory mode='later-mode' nodeset='0'/></numatune>", MemoryBinding("later-mode", (0,))),
    ],
)
def test_the_memory_of_the_whole_guest(xml, binding):
    assert parse(xml).memory == binding
    assert parse(xml).cells == ()


@pytest.mark.parametrize(
    ("attributes", "topology"),
    [
        ("sockets='2' dies='2' clusters='1' cores='4' threads='2'", GuestTopology(2, 8, 2)),
        ("sockets='1' cores='3' threads='1'", GuestTopology(1, 3, 1)),
        ("sockets='0' cores='3' threads='1'", None),
        ("sockets='8000' cores='8000' threads='1'", None),
    ],
)
def test_the_sockets_cores_and_threads_that_a_guest_sees(attributes, topology):
    assert parse(f"<cpu><topology {attributes}/></cpu>").topology == topology
    assert parse("<cpu/>").topology is None


@pytest.mark.parametrize("wrong", ["<numatune><memory nodeset='a'/></numatune>", NUMA.replace("0-1", "0-")])
def test_a_list_that_does_not_parse_is_named(wrong):
    with pytest.raises(Invalid, match=r"numatune nodeset|cpu numa cell"):
        parse(wrong)


def test_huge_pages_are_counted_apart_by_node(tmp_path):
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/numa_maps").write_text(
        "55d0 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n"
        "7f00 bind:1 file=/dev/hugepages/ram huge dirty=2 N1=2 kernelpagesize_kB=2048\n"
        "7f80 default heap\n"
    )
    found = qemu.resident(tmp_path, 7)
    assert (found.per_node, found.huge) == ({0: 4, 1: 4104}, {1: 4096})
    assert qemu.resident(tmp_path, 8) == qemu.Resident({}, {})


def active(*parts: str, definition: tuple[str, ...] | None = None) -> ActiveDomain:
    return ActiveDomain("u", "g", "running", parse(*parts), None if definition is None else parse(*definition))


NOVA = METADATA.format(specs="")
OWN = (
    '<metadata><pinner:pins xmlns:pinner="urn:pinner:pins:1"><pinner:pin kind="vcpu" part="1" cpus="{cpus}"/>'
    "</pinner:pins></metadata>"
)
DEDICATED = METADATA.format(
    specs='<nova:extraSpecs><nova:extraSpec name="hw:cpu_policy">dedicated</nova:extraSpec></nova:extraSpecs>'
)


@pytest.mark.parametrize(
    ("domain", "pins"),
    [
        (active(NOVA, NUMA, PINS), {0: "0-7", 1: "0-7"}),
        (active(NOVA, NUMA, PINS.replace("0-7", "3-4"), definition=(NOVA, NUMA, PINS)), {0: "0-7", 1: "0-7"}),
        (active(NOVA, NUMA, PINS, OWN.format(cpus="0-7")), {0: "0-7"}),
        (active(NOVA, NUMA, PINS, OWN.format(cpus="2-5")), {0: "0-7", 1: "0-7"}),
        (active(NUMA, PINS), {}),
        (active(NOVA, PINS), {}),
        (active(DEDICATED, NUMA, PINS), {}),
    ],
    ids=["live", "definition", "pinner's", "changed since", "not nova's", "no cells", "dedicated"],
)
def test_only_pins_of_novas_cells_bind(domain, pins):
    assert {vcpu: str(pin) for vcpu, pin in cell_pins(domain).items()} == pins


def bound(*, persistent: bool) -> Guest:
    pins = {0: cpus("0-7"), 1: cpus("2-5")}
    return replace(guest(1, 2, cpus("0-15")), persistent=persistent, numa=GuestNuma(pins=pins))


def test_pins_that_pinner_wrote_bind_nothing():
    one = bound(persistent=True)
    own = RecordedPins(frozenset({one.uuid}), frozenset({(one.uuid, "vcpu", 1, cpus("2-5"))}))
    assert binding_pins(one, RecordedPins()) == one.numa.pins
    assert without_recorded_pins(one, own).numa.pins == {0: cpus("0-7")}
    assert binding_pins(bound(persistent=False), own) == {}
    assert binding_pins(bound(persistent=False), RecordedPins()) == one.numa.pins


def test_a_stored_guest_keeps_its_bounds_and_an_older_one_has_none():
    numa = GuestNuma((GuestCell(0, cpus("0-1"), 8, MemoryBinding("strict", (0,))),), None, {0: 8}, {0: cpus("0-7")})
    one = replace(guest(1, 2, cpus("0-15")), numa=numa)
    assert codec.load(Guest, codec.dump(one)) == one
    older = codec.plain(one)
    del older["numa"]
    assert codec.read(Guest, older).numa == GuestNuma()
