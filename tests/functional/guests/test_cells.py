"""A real guest with cells and strict memory, as Nova defines it: read, planned, applied, rolled back."""

import os

import private_libvirt
import pytest
from support.guests.guests_service import service_of
from support.guests.real_guests import ONLINE
from support.server.policy_host import NEVER_BUSY
from support.system.kernel import masks

from pinner.host.live import ROOT
from pinner.host.virt.libvirt import Libvirt
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.guest.guest_numa import GuestCell, MemoryBinding
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions

CALLER = Caller("ann", "test", "req-1")
NAME = f"cells-{os.getpid()}"
EVERY = CpuSet.of(ONLINE)
NODE = MemoryBinding("strict", (0,))
XML = f"""<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>i</nova:name>
<nova:flavor name="m1" id="1"><nova:extraSpecs><nova:extraSpec name="hw:numa_nodes">2</nova:extraSpec>
</nova:extraSpecs></nova:flavor></nova:instance></metadata>
<cputune><vcpupin vcpu='0' cpuset='{EVERY}'/><vcpupin vcpu='1' cpuset='{EVERY}'/>
<emulatorpin cpuset='{EVERY}'/></cputune>
<numatune><memory mode='strict' nodeset='0'/><memnode cellid='0' mode='strict' nodeset='0'/>
<memnode cellid='1' mode='strict' nodeset='0'/></numatune>
<cpu><numa><cell id='0' cpus='0' memory='32' unit='MiB'/><cell id='1' cpus='1' memory='32' unit='MiB'/></numa></cpu>"""

pytestmark = [
    pytest.mark.needs("root"),
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
]


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    private_libvirt.define_guest(module_libvirtd, private_libvirt.guest_xml(NAME, vcpus=2, extra=XML), paused=True)
    return module_libvirtd


@pytest.fixture
def service(libvirtd, tmp_path):
    with service_of(libvirtd, tmp_path) as running:
        yield running


def test_pinner_reads_the_cells_with_their_memory_and_pins(libvirtd):
    (guest,) = Libvirt(libvirtd).guests(ROOT)
    cells = tuple(GuestCell(number, CpuSet.of([number]), 32 << 10, NODE) for number in (0, 1))
    assert (guest.numa.cells, guest.numa.memory, guest.numa.huge_kib) == (cells, NODE, {})
    assert guest.numa.pins == {0: EVERY, 1: EVERY}
    assert not guest.dedicated


def test_an_apply_and_a_rollback_keep_novas_definition(libvirtd, service):
    (guest,) = Libvirt(libvirtd).guests(ROOT)
    definition, before = private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", NAME), masks(guest.pid)
    plan = service.plan("here", Request(busy_threshold=NEVER_BUSY), None, 0.0, CALLER)
    reasons = {want.reason for want in plan.wanted if want.target.kind == "vcpu"}
    assert reasons == {
        "; ".join(f"cell {number} has strict memory on node 0 and CPUs {EVERY} from Nova" for number in (0, 1))
    }
    with pytest.raises(Invalid, match="persist"):
        _ended(service, service.apply(plan.id, ApplyOptions(persist=True), CALLER))
    run = _ended(service, service.apply(plan.id, ApplyOptions(), CALLER))
    assert run.state == "applied"
    assert masks(guest.pid) != before
    assert _ended(service, service.rollback(run.id, CALLER)).state == "rolled_back"
    assert masks(guest.pid) == before
    assert private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", NAME) == definition


def _ended(service, run):
    for _ in service.follow(run.id):
        pass
    return service.run(run.id)
