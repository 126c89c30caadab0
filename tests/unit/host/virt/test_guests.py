"""The guests that Nova pinned, found in its XML (nova/virt/libvirt/driver.py), with or without metadata."""

import pytest
from support.roots import process, two_nodes, write

from pinner.host.kernel import partitions
from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.kernel.partitions import UnitReader
from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, pinned_by_nova, read_guest, read_guests
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import nova_cpus

XML = """<domain><vcpu>3</vcpu><iothreads>1</iothreads>
<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>web</nova:name>
<nova:flavor name="m1" id="1">{specs}</nova:flavor></nova:instance></metadata>
<cputune>{pins}<emulatorpin cpuset="{emulator}"/><iothreadpin iothread="1" cpuset="{emulator}"/></cputune></domain>"""


def domain(pins: tuple[str, ...], emulator: str, specs: dict[str, str] | None) -> domain_xml.Domain:
    rows = "".join(f'<nova:extraSpec name="{name}">{text}</nova:extraSpec>' for name, text in (specs or {}).items())
    vcpus = "".join(f'<vcpupin vcpu="{number}" cpuset="{pin}"/>' for number, pin in enumerate(pins))
    element = f"<nova:extraSpecs>{rows}</nova:extraSpecs>" if specs is not None else ""
    return domain_xml.parse(XML.format(specs=element, pins=vcpus, emulator=emulator))


DEDICATED = {"hw:cpu_policy": "dedicated"}
MIXED = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"}
ISOLATE, SHARE = ({"hw:emulator_threads_policy": policy} for policy in ("isolate", "share"))


@pytest.mark.parametrize(
    ("pins", "emulator", "specs", "cpus", "floating"),
    [
        (("4", "5", "6"), "4-6", DEDICATED, "4-6", True),
        (("4", "0-3", "0-3"), "0-4", MIXED, "4", True),
        (("4", "5", "6"), "7", DEDICATED | ISOLATE, "4-7", False),
        (("4", "5", "6"), "0-1", DEDICATED | SHARE, "4-6", False),
        (("4", "5", "6"), "4", DEDICATED | {"hw:cpu_realtime": "yes"}, "4-6", True),
    ],
    ids=["dedicated", "mixed", "isolate", "share", "realtime"],
)
@pytest.mark.parametrize("metadata", [True, False], ids=["with metadata", "without"])
def test_the_cpus_of_a_guest_that_nova_pinned(tmp_path, metadata, pins, emulator, specs, cpus, floating):
    found = domain(pins, emulator, specs if metadata else None)
    (guest,) = pinned_by_nova(two_nodes(tmp_path), [ActiveDomain("u", "web", "running", found, found)])
    assert (guest.name, str(guest.cpus), guest.floating) == ("web", cpus, floating)


@pytest.mark.parametrize("metadata", [True, False], ids=["with metadata", "without"])
def test_pinners_live_emulator_pin_does_not_change_novas_policy(tmp_path, metadata):
    specs = DEDICATED if metadata else None
    live, defined = domain(("4", "5", "6"), "1", specs), domain(("4", "5", "6"), "4-6", specs)
    (guest,) = pinned_by_nova(two_nodes(tmp_path), [ActiveDomain("u", "web", "running", live, defined)])
    assert guest.floating


@pytest.mark.parametrize("specs", [None, {}, {"hw:cpu_policy": "shared"}])
def test_a_guest_without_dedicated_cpus_is_not_listed(tmp_path, specs):
    found = domain(("0-3", "0-3", "0-3"), "0-3", specs)
    assert list(pinned_by_nova(two_nodes(tmp_path), [ActiveDomain("u", "web", "running", found, found)])) == []


def test_a_pinned_guest_without_novas_metadata_is_not_listed(tmp_path):
    found = domain_xml.parse("<domain><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='4'/></cputune></domain>")
    assert list(pinned_by_nova(two_nodes(tmp_path), [ActiveDomain("u", "web", "running", found, found)])) == []


UUID = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(("metadata", "cpus"), [(True, "4"), (False, "0,4")])
def test_a_snapshot_and_an_agent_agree_on_the_cpus_of_a_mixed_guest_on_a_single_shared_cpu(tmp_path, metadata, cpus):
    root = two_nodes(tmp_path)
    process(root, 100, command=b"qemu-system-x86_64\0-uuid\0" + UUID.encode() + b"\0")
    xml = domain(("4", "0", "0"), "0,4", MIXED if metadata else None)
    active = ActiveDomain(UUID, "web", "running", xml, xml)
    guest = read_guest(root, active, qemu.find(root, {UUID}), UnitReader(root))
    (owned,) = pinned_by_nova(root, [active])
    assert str(owned.cpus) == str(nova_cpus(guest, CpuSet.parse("0-6"))) == cpus


def active(number: int, xml: str = "<domain><vcpu>1</vcpu>{}</domain>", **parts: str) -> ActiveDomain:
    found = domain_xml.parse(xml.format(parts.get("rest", "")))
    return ActiveDomain(f"{UUID[:-1]}{number}", f"g{number}", "running", found, found)


@pytest.fixture
def two_guests(tmp_path):
    root = two_nodes(tmp_path)
    for number in (1, 2):
        uuid = active(number).uuid.encode()
        process(root, 100 * number, command=b"qemu-system-x86_64\0-uuid\0" + uuid + b"\0")
        maps = "7f00 default huge N0=1 kernelpagesize_kB=2048\n7f80 default anon=1 N1=1 kernelpagesize_kB=4\n"
        write(root, {f"proc/{100 * number}/numa_maps": maps})
    return root


def test_without_memory_only_guests_with_huge_pages_are_asked_for_their_nodes(two_guests):
    huge = active(2, rest="<memoryBacking><hugepages/></memoryBacking>")
    processes = qemu.find(two_guests, {active(1).uuid, huge.uuid})
    with_memory, without = (
        read_guests(two_guests, [active(1), huge], processes, memory=memory) for memory in (True, False)
    )
    assert [guest.memory_per_node for guest in with_memory] == [{0: 2048, 1: 4}] * 2
    assert [guest.memory_per_node for guest in without] == [{}, {0: 2048, 1: 4}]
    assert without[1] == with_memory[1]


def test_the_mounts_are_read_once_for_all_guests(two_guests, monkeypatch):
    looked = []
    monkeypatch.setattr(partitions, "cpuset_mount", lambda root: looked.append(root) or cpuset_mount(root))
    assert len(read_guests(two_guests, [active(1), active(2)], qemu.find(two_guests, {UUID, active(2).uuid}))) == 2
    assert looked == [two_guests]
