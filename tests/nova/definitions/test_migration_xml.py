"""A live migration with the XML that Nova's own code writes for the destination, and pinner's hook script there."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import private_libvirt
import pytest
from support.guests.migrations import BOTH, FIRST, SECOND, Mover, arrived, destination_at, pins, vcpus_of
from support.system.kernel import masks

from pinner.host.virt import domain_xml
from pinner.model.cpuset import CpuSet

migration = pytest.importorskip("nova.virt.libvirt.migration", reason="needs Nova itself (tox -e nova)")
objects = pytest.importorskip("nova.objects")
migrate_data = pytest.importorskip("nova.objects.migrate_data")

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
]

FILTER = Path(__file__).parents[3] / "etc/pinner/libvirt-strip-pins"


@pytest.fixture(scope="module")
def destination(tmp_path_factory):
    with destination_at(tmp_path_factory.mktemp("libvirt") / "e") as destination:
        yield destination


@pytest.fixture
def mover(tmp_path_factory):
    """A guest of the shared set FIRST, which pinner has pinned to it and has not released."""
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "d") as uri:
        mover = Mover(uri)
        assert set(masks(mover.pid()).values()) == {FIRST}
        yield mover
        mover.end()


def novas_xml(xml, **facts):
    """The XML of the guest for its destination, about which Nova knows these facts."""
    objects.register_all()
    data = migrate_data.LibvirtLiveMigrateData(
        bdms=[], serial_listen_addr=None, serial_listen_ports=[], supported_perf_events=[], **facts
    )
    guest = SimpleNamespace(get_xml_desc=lambda dump_migratable: xml)
    instance = SimpleNamespace(flavor=SimpleNamespace(extra_specs={}))
    return migration.get_updated_guest_xml(instance, guest, data, lambda *_: None)


def test_the_shared_set_of_the_destination_wins_against_pinners_pins(mover, destination, tmp_path):
    """Without the hook the guest ran on FIRST: its pin to that CPU is stronger than the set of Nova's fix of bug
    1869804."""
    xml = novas_xml(mover.xml(), dst_cpu_shared_set_info={int(SECOND)})
    assert domain_xml.parse(xml).cpuset == CpuSet.parse(SECOND)
    assert set(domain_xml.parse(xml).pins.values()) == {CpuSet.parse(FIRST)}
    watch = mover.migrate(destination, xml=xml, tmp_path=tmp_path)
    assert arrived(mover, destination).pins == {}
    assert set(vcpus_of(mover, destination).values()) == {SECOND}
    # libvirt starts QEMU's threads in the set of <vcpu>; before that they have the affinity of libvirt itself.
    assert watch.seen <= {SECOND, BOTH}
    private_libvirt.virsh(destination.uri, "destroy", mover.name)


def test_a_destination_without_a_shared_set_gets_a_free_guest(mover, destination, tmp_path):
    mover.migrate(destination, xml=novas_xml(mover.xml(), dst_cpu_shared_set_info=set()), tmp_path=tmp_path)
    assert arrived(mover, destination).pins == {}
    assert set(vcpus_of(mover, destination).values()) == {BOTH}
    private_libvirt.virsh(destination.uri, "destroy", mover.name)


CELLS = (
    "<numatune><memory mode='strict' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/></numatune>"
    "<cputune><vcpupin vcpu='0' cpuset='0-3'/><vcpupin vcpu='1' cpuset='0-3'/><emulatorpin cpuset='0-3'/></cputune>"
)


@pytest.mark.parametrize("there", ["4-7", "0-3"])
def test_the_pins_that_nova_writes_for_numa_cells_stay(there):
    """Also where they are those that pinner made on the source."""
    named = pins(*(f"xmlns='' kind='vcpu' part='{part}' cpus='0-3'" for part in (0, 1)), "kind='emulator' cpus='0-3'")
    mark = named.replace("<pins>", "<pins xmlns='urn:pinner:pins:1'>")
    instance = "<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'/>"
    xml = f"<domain><metadata>{instance}{mark}</metadata><vcpu>2</vcpu>{CELLS}</domain>"
    cpus = CpuSet.parse(there)
    info = objects.LibvirtLiveMigrateNUMAInfo(
        cpu_pins={"0": set(cpus), "1": set(cpus)}, cell_pins={"0": {0}}, emulator_pins=set(cpus)
    )
    after = subprocess.run(
        [FILTER], input=novas_xml(xml, dst_numa_info=info).encode(), capture_output=True, check=True
    ).stdout.decode()
    assert domain_xml.parse(after).pins == {("vcpu", 0): cpus, ("vcpu", 1): cpus, ("emulator", None): cpus}
    assert "urn:pinner" not in after
    assert 'nodeset="0"' in after
