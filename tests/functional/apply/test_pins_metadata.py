"""pinner's metadata names its pins in a real libvirtd: through --persist, restarts, a handover to another libvirtd and
an undo, the pins that pinner made stay its own, and those of others never become its own."""

import re
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import private_libvirt
import pytest
from lxml import etree
from support.guests.real_guests import FIRST, ONLINE, SECOND, apply, change, emulator, plan_of, rollback, vcpu, whole
from support.system.kernel import masks
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.host.inventory import LIVE, take_snapshot
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.host.virt.libvirt_events import Connected, LibvirtEvents
from pinner.model.change import NamedPins, PartPin, Target
from pinner.model.guest.pins_metadata import own_elements
from pinner.model.plan.request import Request
from pinner.planning.planner import plan
from pinner.planning.policy.release import release

pytestmark = [
    pytest.mark.fault(76),
    pytest.mark.needs("exactly_two_cpus"),
]

NOVA = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>i</nova:name>
<nova:flavor name="m1" id="1">{}</nova:flavor></nova:instance></metadata>"""
OLD_NOVA, NEW_NOVA = NOVA.format(""), NOVA.format("<nova:extraSpecs></nova:extraSpecs>")
MORE = pytest.mark.slow("one more guest whose metadata names pins")
HOUSEKEEPING = Request(housekeeping=str(FIRST), guests=())


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of a libvirtd of its own: guests of other tests that look like Nova's would change the results."""
    return module_libvirtd


@pytest.fixture
def start(start_guest, virsh):
    with ExitStack() as undo:

        def start(extra="", **parts):
            guest = start_guest(persistent=True, extra=extra, **parts)
            undo.callback(virsh, "destroy", guest.name)
            return guest

        yield start


def observe(libvirt, guest):
    """A snapshot in which only this guest counts."""
    found = take_snapshot(LIVE, "h1", libvirt, sample_seconds=0, now=lambda: NOON)
    return replace(found, guests=tuple(each for each in found.guests if each.uuid == guest.uuid), processes=())


def names(virsh, guest, *flags):
    """The pins that are pinner's in the XML, read in this test's own way, and those that the metadata names."""
    domain = etree.fromstring(virsh("dumpxml", *flags, guest.name))
    own = {(pin.kind, pin.part, str(pin.cpus)) for _, pin in own_elements(domain)}
    element = domain.find("metadata/{urn:pinner:pins:1}pins")
    children = () if element is None else element.iterchildren()
    named = {
        (each.get("kind"), int(each.get("part")) if each.get("part") else None, each.get("cpus")) for each in children
    }
    return own, named


def written(guest):
    """The pins of real_guests.whole."""
    return {
        ("emulator", None, str(FIRST)),
        *(("iothread", each.id, str(FIRST)) for each in guest.iothreads),
        *(("vcpu", each.id, str(SECOND)) for each in guest.vcpus),
    }


def defined(virsh, guest):
    """The XML of the definition. libvirt lists the iothreads in it from the first pin on."""
    return re.sub(r"\s*<iothreadids>.*</iothreadids>", "", virsh("dumpxml", "--inactive", guest.name), flags=re.DOTALL)


def live(virsh, guest):
    """The XML of the running guest, without the pins that libvirt cannot remove and without an empty <metadata>."""
    xml = re.sub(r"\s*<iothreadids>.*</iothreadids>", "", virsh("dumpxml", guest.name), flags=re.DOTALL)
    pins = re.sub(r"\s*<(emulator|vcpu|iothread)pin [^>]*/>|\s*<metadata/>", "", xml)
    return re.sub(r"\s*<cputune>\s*</cputune>", "", pins)


@pytest.mark.parametrize(
    ("extra", "persist"),
    [
        pytest.param("", False, id="no Nova"),
        pytest.param("", True, id="no Nova, persist", marks=MORE),
        pytest.param(OLD_NOVA, False, id="before Nova 32", marks=MORE),
        pytest.param(OLD_NOVA, True, id="before Nova 32, persist"),
        pytest.param(NEW_NOVA, False, id="Nova 32", marks=MORE),
        pytest.param(NEW_NOVA, True, id="Nova 32, persist"),
    ],
)
def test_the_metadata_names_exactly_the_pins_of_the_run_and_a_rollback_restores_the_xml(
    host, journal, start, virsh, extra, persist
):
    guest = start(extra)
    before = live(virsh, guest), defined(virsh, guest)
    assert apply(plan_of(host, whole(host, guest)), host, journal, persist=persist).state == "applied"
    everything = written(guest)
    assert names(virsh, guest) == (everything, everything)
    assert names(virsh, guest, "--inactive") == ((everything, everything) if persist else (set(), set()))
    assert rollback(host, journal).state == "rolled_back"
    assert (live(virsh, guest), defined(virsh, guest)) == before


@pytest.mark.parametrize("extra", [OLD_NOVA, NEW_NOVA], ids=["before Nova 32", "Nova 32"])
def test_after_persist_a_guest_of_nova_is_placed_again_also_when_it_was_started_again(
    host, libvirt, journal, start, virsh, extra
):
    guest = start(extra)
    first = plan(observe(libvirt, guest), "s", HOUSEKEEPING)
    assert apply(first, host, journal, persist=True).state == "applied"
    for _ in range(2):
        seen = observe(libvirt, guest)
        assert not seen.guests[0].dedicated
        assert host.bounds().nova.guests == ()
        made = plan(seen, "s", HOUSEKEEPING)
        assert {want.target.owner for want in made.wanted} == {guest.uuid}
        assert (made.changes, made.skipped, made.blocked) == ((), (), "")
        virsh("destroy", guest.name)
        virsh("start", guest.name, "--paused")
        assert names(virsh, guest)[0] == {
            (each.target.kind, each.target.part, str(each.after)) for each in first.changes
        }


def test_the_destination_of_a_migration_knows_the_pins_that_came_along(host, journal, start, virsh, destination):
    """Nova gives the live XML to the destination, as the definition too. So this test defines and starts it there."""
    guest = start(OLD_NOVA)
    apply(plan_of(host, whole(host, guest)), host, journal)
    carried = virsh("dumpxml", "--migratable", guest.name)
    virsh("suspend", guest.name)
    renamed = carried.replace(guest.uuid, guest.uuid[:-4] + "beef").replace(guest.name, f"{guest.name}-b")
    private_libvirt.define_guest(destination, renamed, paused=True)
    there = Libvirt(destination)
    arrived = next(each for each in there.guests(Path("/")) if each.name == f"{guest.name}-b")
    try:
        assert {(pin.kind, pin.part, str(pin.cpus)) for pin in arrived.own_pins} == written(guest)
        assert not arrived.dedicated
        made = plan(observe(there, arrived), "s", Request(housekeeping=str(SECOND)))
        assert {str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"} == {str(FIRST)}
        live = LiveHost(there)
        done = executor.apply(made, make_run("there"), live, journal, lambda: NOON, lambda *_: None)
        assert done.state == "applied"
        now = next(each for each in there.guests(Path("/")) if each.uuid == arrived.uuid)
        assert {str(pin.cpus) for pin in now.own_pins if pin.kind == "vcpu"} == {str(FIRST)}
        # The definition still has the former pins. They stay pinner's.
        domain = etree.fromstring(private_libvirt.virsh(destination, "dumpxml", "--inactive", arrived.name))
        assert {(pin.kind, pin.part, str(pin.cpus)) for _, pin in own_elements(domain)} == written(guest)
        assert (now.dedicated, now.operator_pins) == (False, ())
    finally:
        private_libvirt.virsh(destination, "destroy", arrived.name)


@pytest.mark.parametrize("where", ["--live", "--config"])
def test_a_pin_that_an_operator_changes_afterwards_is_not_pinners(host, libvirt, journal, start, virsh, where):
    guest = start(OLD_NOVA)
    apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    virsh("vcpupin", guest.name, "0", str(FIRST), where)
    own, named = names(virsh, guest, *(["--inactive"] if where == "--config" else []))
    assert named - own == {("vcpu", 0, str(SECOND))}
    # One CPU in the definition, and pinner has not written it: before Nova 32 only Nova does that.
    assert observe(libvirt, guest).guests[0].dedicated is (where == "--config")


def test_a_release_names_the_pins_that_it_leaves(host, libvirt, journal, start, virsh):
    """libvirt cannot remove a pin: a release leaves explicit ones, which must not pass for Nova's elsewhere."""
    guest = start(OLD_NOVA)
    changes = whole(host, guest)
    apply(plan_of(host, changes), host, journal)
    made = release(observe(libvirt, guest), "s", guest.uuid, journal.changes_of(guest.uuid), FIRST, "leaves")
    assert {(each.target.kind, str(each.after)) for each in made.changes} == {("vcpu", str(FIRST))}
    done = executor.apply(made, make_run("leave", kind="release"), host, journal, lambda: NOON, lambda *_: None)
    assert (done.state, done.error) == ("applied", "")
    own, named = names(virsh, guest)
    # The others stay on the CPU that the destination has, too.
    assert own == named == {(kind, part, str(FIRST)) for kind, part, _ in written(guest)}
    undo = make_run("all", kind="rollback", plan="")
    assert executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None).state == "rolled_back"
    assert names(virsh, guest) == (set(), set())


def test_a_vcpu_that_is_unplugged_loses_nothing_of_the_others(host, journal, start, virsh):
    guest = start(vcpus=2)
    apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    with_both = written(guest)
    virsh("setvcpus", guest.name, "1", "--config")
    assert names(virsh, guest)[0] == with_both
    assert rollback(host, journal).state == "rolled_back"
    assert names(virsh, guest) == names(virsh, guest, "--inactive") == (set(), set())


def test_the_mark_of_an_excluded_guest_and_the_names_do_not_disturb_each_other(host, libvirt, journal, start, virsh):
    guest = start()
    host.guests.set_excluded(guest.uuid, excluded=True)
    marked = live(virsh, guest), defined(virsh, guest)
    apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    assert names(virsh, guest)[0] == written(guest)
    assert observe(libvirt, guest).guests[0].excluded
    rollback(host, journal)
    assert (live(virsh, guest), defined(virsh, guest)) == marked
    apply(plan_of(host, whole(host, guest)), host, journal, run="run-2")
    host.guests.set_excluded(guest.uuid, excluded=False)
    assert names(virsh, guest)[0] == written(guest)


def test_a_transient_guest_is_named_while_it_runs(host, journal, start_guest, virsh):
    guest = start_guest()
    apply(plan_of(host, whole(host, guest)), host, journal)
    assert names(virsh, guest)[0] == written(guest)
    rollback(host, journal)
    assert names(virsh, guest) == (set(), set())


def test_a_guest_is_shut_down_before_the_rollback_of_a_persisted_run(host, journal, start_guest, virsh, kill):
    guest = start_guest(persistent=True)
    before = defined(virsh, guest)
    apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    kill(guest)
    while "shut off" not in virsh("domstate", guest.name):
        time.sleep(0.1)
    rollback(host, journal)
    assert defined(virsh, guest) == before


def test_a_second_run_costs_one_write_and_names_the_parts_of_both(host, journal, start, virsh):
    guest = start()
    apply(plan_of(host, [change(host, emulator(guest), FIRST)]), host, journal)
    writes = []
    name = host.guests.name_pins
    host.guests.name_pins = lambda *arguments: (writes.append(arguments), name(*arguments))
    apply(
        plan_of(host, [change(host, vcpu(guest, each.id), SECOND) for each in guest.vcpus]), host, journal, run="run-2"
    )
    assert len(writes) == 1
    assert host.guests.named_pins(guest.uuid).live == (
        PartPin("emulator", None, FIRST),
        *(PartPin("vcpu", each.id, SECOND) for each in guest.vcpus),
    )
    assert set(masks(guest.pid).values()) <= {str(FIRST), str(SECOND), f"{ONLINE[0]}-{ONLINE[1]}"}


def test_the_names_cause_no_event_that_a_policy_acts_on(host, libvirtd, start):
    """A policy checks the host after an event of a guest. Its own runs must not cause one."""
    guest = start()
    signals = SimpleQueue()
    events = LibvirtEvents(libvirtd, signals.put)
    events.start()
    try:
        assert isinstance(signals.get(timeout=60), Connected)
        pins = (PartPin("emulator", None, FIRST),)
        host.guests.name_pins(Target("metadata", guest.uuid, None, guest.name), NamedPins(pins, pins))
        host.guests.set_excluded(guest.uuid, excluded=True)
        found = signals.get(timeout=60)
        assert (found.kind, found.guest, found.detail) == ("guest-changed", guest.uuid, "metadata")
        time.sleep(0.5)
        # The mark is in the running guest and in the definition.
        assert signals.qsize() <= 1
    finally:
        events.close()
