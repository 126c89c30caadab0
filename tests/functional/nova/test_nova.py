"""A guest that Nova pinned and a guest that floats, on a real libvirtd and kernel; Nova has the second of two CPUs."""

from dataclasses import replace
from pathlib import Path

import private_libvirt
import pytest
from support.guests.real_guests import FIRST, SECOND, apply, rollback
from support.system.kernel import allowed, masks
from support.values import NOON

from pinner.host.inventory import LIVE, SnapshotInputs, take_snapshot
from pinner.host.live import LiveHost
from pinner.host.nova import nova_conf
from pinner.model.errors import NovaConflict
from pinner.model.guest.nova import NovaSets, configured
from pinner.model.plan.request import Request
from pinner.planning import planner
from pinner.planning.placement import record
from pinner.planning.planner import plan

pytestmark = pytest.mark.needs("exactly_two_cpus")

METADATA = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>i</nova:name>
<nova:flavor name="m1" id="1">{specs}</nova:flavor></nova:instance></metadata>"""
SPEC = '<nova:extraSpecs><nova:extraSpec name="hw:cpu_policy">dedicated</nova:extraSpec></nova:extraSpecs>'
BEFORE_32 = ""
"""Without extra specs in the metadata, the pins of the definition show that Nova dedicated CPUs."""
PINS = """<cputune><vcpupin vcpu='0' cpuset='{cpu}'/><vcpupin vcpu='1' cpuset='{cpu}'/><emulatorpin cpuset='{cpu}'/>
<iothreadpin iothread='1' cpuset='{cpu}'/></cputune>"""


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of a libvirtd of its own: guests of other tests that look like Nova's would change the results."""
    return module_libvirtd


@pytest.fixture
def start_pinned(start_guest, libvirtd):
    """Starts a guest that is pinned to the second CPU, as Nova does it."""
    started = []

    def start(specs=SPEC):
        extra = METADATA.format(specs=specs) + PINS.format(cpu=SECOND)
        started.append(start_guest(persistent=True, extra=extra))
        return started[-1]

    yield start
    for guest in started:
        private_libvirt.virsh(libvirtd, "destroy", guest.name)


@pytest.fixture
def floating(start_guest, libvirtd):
    guest = start_guest(persistent=True, extra=METADATA.format(specs=""))
    yield guest
    private_libvirt.virsh(libvirtd, "destroy", guest.name)


@pytest.fixture
def observe(libvirt):
    """Takes a snapshot with only these guests: other guests and processes must not matter."""

    def observe(*guests, **sets):
        snapshot = take_snapshot(LIVE, "h1", libvirt, sample_seconds=0, now=lambda: NOON, inputs=SnapshotInputs(**sets))
        names = {guest.name for guest in guests}
        return replace(snapshot, guests=tuple(g for g in snapshot.guests if g.name in names), processes=())

    return observe


def own_threads(guest):
    """The ids of QEMU's own threads: emulator threads and iothreads."""
    return [*(thread.tid for thread in guest.emulator.threads), *(each.thread.tid for each in guest.iothreads)]


@pytest.mark.fault(15)
@pytest.mark.parametrize("specs", [SPEC, BEFORE_32], ids=["by its metadata", "by its pins"])
def test_plan_apply_and_drift_never_touch_a_pinned_guest(host, journal, start_pinned, floating, observe, specs):
    pinned = start_pinned(specs)
    before = masks(pinned.pid)
    snapshot = observe(pinned, floating)
    new_plan = plan(snapshot, "s", Request())
    assert {want.target.name for want in new_plan.wanted} == {floating.name}
    assert (new_plan.roles.vcpu, new_plan.roles.emulator) == (FIRST, FIRST)
    assert apply(new_plan, host, journal).state == "applied"
    assert set(masks(floating.pid).values()) == {str(FIRST)}
    again = planner.plan_from_placement(observe(pinned, floating), "s", Request(), record(new_plan, snapshot, None))
    assert again.changes == ()
    assert masks(pinned.pid) == before
    assert rollback(host, journal).state == "rolled_back"
    assert masks(pinned.pid) == before


@pytest.mark.parametrize("specs", [SPEC, BEFORE_32], ids=["by its metadata", "by its pins"])
def test_emulator_threads_of_a_pinned_guest_move_only_on_request(host, journal, start_pinned, observe, specs):
    pinned, request = start_pinned(specs), Request(nova_emulators=True)
    before = masks(pinned.pid)
    assert set(before.values()) == {str(SECOND)}
    new_plan = plan(observe(pinned), "s", request)
    assert apply(new_plan, host, journal).state == "applied"
    assert {allowed(tid) for tid in own_threads(pinned)} == {str(FIRST)}
    assert {allowed(vcpu.thread.tid) for vcpu in pinned.vcpus} == {str(SECOND)}
    assert plan(observe(pinned), "s", request).changes == ()
    assert rollback(host, journal).state == "rolled_back"
    assert masks(pinned.pid) == before


@pytest.mark.fault(15)
def test_a_resize_to_a_dedicated_flavor_races_an_apply(host, journal, floating, observe, libvirtd):
    """Nova ends the guest, defines it again with pins and the same UUID, and starts it."""
    new_plan = plan(observe(floating), "s", Request())
    assert new_plan.changes
    private_libvirt.virsh(libvirtd, "destroy", floating.name)
    pinned = METADATA.format(specs=SPEC) + PINS.format(cpu=SECOND)
    resized = private_libvirt.guest_xml(floating.name, extra=f"<uuid>{floating.uuid}</uuid>{pinned}")
    private_libvirt.define_guest(libvirtd, resized, paused=True)
    with pytest.raises(NovaConflict) as refused:
        apply(new_plan, host, journal)
    details = refused.value.details
    assert details["ours"].startswith(f"guest {floating.name} ")
    assert details["theirs"] == f"guest {floating.name}, to which Nova dedicates CPUs {SECOND}"
    (now,) = observe(floating).guests
    assert set(masks(now.pid).values()) == {str(SECOND)}
    assert journal.interrupted() is None


@pytest.mark.fault(15)
def test_a_new_pinned_guest_races_an_apply(host, journal, start_pinned, floating, observe):
    new_plan = plan(observe(floating), "s", Request())
    before = masks(floating.pid)
    pinned = start_pinned()
    with pytest.raises(NovaConflict, match=f"guest {pinned.name}, to which Nova dedicates CPUs {SECOND}"):
        apply(new_plan, host, journal)
    assert masks(floating.pid) == before


@pytest.mark.fault(15)
@pytest.mark.parametrize(
    ("line", "theirs"),
    [
        (f"cpu_dedicated_set = {SECOND}", f"Nova's cpu_dedicated_set {SECOND} "),
        (f"cpu_shared_set = {FIRST}", f"Nova's cpu_shared_set {FIRST} "),
    ],
    ids=["dedicated", "shared"],
)
def test_nova_conf_is_read_again_before_an_apply(libvirt, journal, floating, observe, tmp_path, line, theirs):
    file: Path = tmp_path / "nova.conf"
    file.write_text("[compute]\n")
    host = LiveHost(libvirt, lambda guests: configured(NovaSets(), nova_conf.read([file]), guests))
    new_plan = plan(observe(floating, nova=nova_conf.read([file])), "s", Request())
    assert new_plan.roles.vcpu >= SECOND
    before = masks(floating.pid)
    file.write_text(f"[compute]\n{line}\n")
    with pytest.raises(NovaConflict, match=theirs):
        apply(new_plan, host, journal)
    assert masks(floating.pid) == before
    fresh = plan(observe(floating, nova=nova_conf.read([file])), "s", Request())
    assert apply(fresh, host, journal, run="run-2").state == "applied"
    assert {allowed(vcpu.thread.tid) for vcpu in floating.vcpus} == {str(FIRST)}
