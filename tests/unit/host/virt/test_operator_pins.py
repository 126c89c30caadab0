"""The pins of a guest that an operator wrote, told from those of pinner and Nova by the XML and the journal."""

import pytest
from support.roots import process, two_nodes

from pinner.host.kernel.partitions import UnitReader
from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, read_guest, without_recorded_pins
from pinner.model.cpuset import CpuSet
from pinner.model.run.journal import RecordedPins

pytestmark = pytest.mark.fault(52)

UUID = "00000000-0000-4000-8000-000000000001"
QEMU = b"qemu-system-x86_64\0-uuid\0" + UUID.encode() + b"\0"
NONE = RecordedPins()
NOVA = (
    '<metadata><n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1"><n:name>web</n:name></n:instance>'
    "</metadata>"
)


def xml(*pins: str, cpuset: str = "", rest: str = "") -> domain_xml.Domain:
    """A guest of two vCPUs and an iothread; a pin is "vcpu 0 4-5", "iothread 1 4" or "emulator 4"."""
    found = ""
    for pin in pins:
        kind, *part, cpus = pin.split()
        number = f' {kind}="{part[0]}"' if part else ""
        found += f'<{kind}pin{number} cpuset="{cpus}"/>'
    inside = f' cpuset="{cpuset}"' if cpuset else ""
    return domain_xml.parse(
        f"<domain><vcpu{inside}>2</vcpu><iothreads>1</iothreads>{rest}<cputune>{found}</cputune></domain>"
    )


def pins_of(tmp_path, live, definition, recorded=NONE, command=QEMU) -> list[str]:
    root = two_nodes(tmp_path)  # CPUs 0-6 are online
    process(root, 100, command=command)
    domain = ActiveDomain(UUID, "vm", "running", live, definition)
    found = read_guest(root, domain, qemu.find(root, {UUID}), UnitReader(root))
    pins = without_recorded_pins(found, recorded).operator_pins
    return [" ".join(f"{pin.written} {pin.kind} {pin.part} {pin.cpus}".split()) for pin in pins]


def test_a_definition_with_pins_of_every_kind(tmp_path):
    found = xml("vcpu 0 4", "vcpu 1 0-6", "emulator 0-1", "iothread 1 2")
    assert pins_of(tmp_path, found, found) == [
        "definition emulator None 0-1",
        "definition vcpu 0 4",
        "definition iothread 1 2",
    ]


def test_a_pin_that_restricts_nothing_is_nobodys(tmp_path):
    """libvirt writes it when a rollback restores a part that had no pin."""
    live = xml("vcpu 0 0-6", "vcpu 1 0-15", "emulator 0-6")
    assert pins_of(tmp_path, live, xml()) == []
    assert pins_of(tmp_path, xml("vcpu 0 2-3", cpuset="2-3"), xml(cpuset="2-3")) == []


def test_pins_only_in_the_definition_and_pins_only_in_the_running_guest(tmp_path):
    assert pins_of(tmp_path, xml(), xml("vcpu 0 4")) == ["definition vcpu 0 4"]
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml()) == ["live vcpu 0 4"]
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml("vcpu 0 5")) == ["definition vcpu 0 5", "live vcpu 0 4"]


def test_a_transient_guest_has_its_pins_only_in_the_running_guest(tmp_path):
    assert pins_of(tmp_path, xml("vcpu 1 4"), None) == ["live vcpu 1 4"]


def test_live_pins_of_a_guest_that_pinner_has_placed_are_pinners(tmp_path):
    placed = RecordedPins(placed=frozenset({UUID}))
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml(), placed) == []
    assert pins_of(tmp_path, xml("vcpu 0 4"), None, placed) == []
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml("vcpu 0 5"), placed) == ["definition vcpu 0 5"]


def test_after_a_rollback_live_pins_of_parts_that_were_never_moved_are_their_operators(tmp_path):
    moved = RecordedPins(parts=frozenset({(UUID, "emulator", None)}))
    assert pins_of(tmp_path, xml("vcpu 0 4", "emulator 0-1"), xml(), moved) == ["live vcpu 0 4"]


def test_a_pin_that_pinner_wrote_to_the_definition_is_pinners_and_another_one_is_not(tmp_path):
    recorded = RecordedPins(frozenset({UUID}), frozenset({(UUID, "vcpu", 0, CpuSet.parse("4"))}))
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml("vcpu 0 4"), recorded) == []
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml("vcpu 0 4", "vcpu 1 4"), recorded) == ["definition vcpu 1 4"]
    assert pins_of(tmp_path, xml("vcpu 0 4"), xml("vcpu 0 3"), recorded) == ["definition vcpu 0 3"]


@pytest.mark.parametrize("definition", [xml("vcpu 0 4"), None])
def test_live_pins_that_a_guest_brought_from_another_host_do_not_count(tmp_path, definition):
    found = pins_of(tmp_path, xml("vcpu 0 3", "vcpu 1 3"), definition, command=QEMU + b"-incoming\0defer\0")
    assert found == (["definition vcpu 0 4"] if definition else [])


@pytest.mark.parametrize(
    ("inside", "rest", "restriction"),
    [("2-3", "", "2-3"), ("3,99", "", "3,99"), ("0-15", "", ""), ("", "", ""), ("2-3", NOVA, "")],
    ids=["some", "an absent one", "every one", "none", "Nova's cpu_shared_set"],
)
def test_the_cpus_of_a_definition_restrict_a_guest_unless_nova_wrote_them(tmp_path, inside, rest, restriction):
    root = two_nodes(tmp_path)
    process(root, 100, command=QEMU)
    found = xml(cpuset=inside, rest=rest)
    domain = ActiveDomain(UUID, "vm", "running", found, found)
    guest = read_guest(root, domain, qemu.find(root, {UUID}), UnitReader(root))
    assert (str(guest.restriction), guest.operator_pins) == (restriction, ())


def test_the_pins_of_a_guest_of_nova_are_not_an_operators(tmp_path):
    found = xml("vcpu 0 0-3", "emulator 0-3", rest=NOVA)
    assert pins_of(tmp_path, found, found) == []
