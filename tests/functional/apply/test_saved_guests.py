"""A guest that pinner has pinned is saved (virsh managedsave). A rollback restores its saved image exactly, whenever it
is made; so the guest starts from the image as if pinner had never been there."""

import re
import subprocess
from contextlib import ExitStack, suppress

import private_libvirt
import pytest
from support.guests.real_guests import FIRST, ONLINE, apply, plan_of, whole
from support.system.kernel import masks
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.steps.metadata import keeps_pins
from pinner.host.live import ROOT

pytestmark = [
    pytest.mark.fault(76),
    pytest.mark.needs("exactly_two_cpus"),
]

BOTH = f"{ONLINE[0]}-{ONLINE[1]}"
PASSWORD = "<graphics type='vnc' autoport='yes' passwd='s3cret'/>"


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of a libvirtd of its own, which is killed here."""
    return module_libvirtd


@pytest.fixture
def start(start_guest, virsh):
    with ExitStack() as undo:

        def start(**parts):
            guest = start_guest(persistent=True, **parts)
            undo.callback(remove, virsh, guest.name)
            return guest

        yield start


def remove(virsh, name):
    with suppress(subprocess.CalledProcessError):
        virsh("destroy", name)
    virsh("undefine", name, "--managed-save")


def save(virsh, guest):
    """Save the guest; the XML of its image, without the iothreads, which libvirt lists from the first pin on."""
    virsh("managedsave", guest.name)
    return image(virsh, guest)


def image(virsh, guest):
    xml = virsh("managedsave-dumpxml", guest.name, "--security-info")
    return re.sub(r"\s*<iothreadids>.*</iothreadids>|\s*<metadata/>", "", xml, flags=re.DOTALL)


def started(libvirt, virsh, guest):
    """The guest, started from its image."""
    virsh("start", guest.name, "--paused")
    return next(each for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)


def roll_back(host, journal, undoes, boot="boot-1"):
    run = make_run("back", kind="rollback", undoes=undoes, boot=boot, **({} if undoes else {"plan": ""}))
    ended = executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    return ended.state, ended.error


MORE = pytest.mark.slow("one more rollback of a saved image")
ONE_RUN, ALL_RUNS = "run-1", ""


@pytest.mark.parametrize(
    ("undoes", "since"),
    [
        pytest.param(ONE_RUN, "nothing", id="one run"),
        pytest.param(ONE_RUN, "libvirtd was killed", id="one run, libvirtd was killed", marks=MORE),
        pytest.param(ONE_RUN, "the host was restarted", id="one run, the host was restarted"),
        pytest.param(ALL_RUNS, "nothing", id="all runs", marks=MORE),
        pytest.param(ALL_RUNS, "libvirtd was killed", id="all runs, libvirtd was killed"),
        pytest.param(ALL_RUNS, "the host was restarted", id="all runs, the host was restarted", marks=MORE),
    ],
)
def test_a_rollback_restores_the_saved_image(host, libvirt, libvirtd, journal, start, virsh, undoes, since):
    guest = start(devices=PASSWORD)
    before = save(virsh, guest)
    assert "s3cret" in before
    guest = started(libvirt, virsh, guest)
    assert apply(plan_of(host, whole(host, guest)), host, journal, boot="boot-1").state == "applied"
    assert "pinner:pin" in save(virsh, guest)
    boot = "boot-1"
    if since == "libvirtd was killed":
        with private_libvirt.killed(libvirtd):
            pass
    if since == "the host was restarted":
        boot = "boot-2"
        journal.end_earlier_boots(boot, NOON, lambda uuid: keeps_pins(uuid, host))
    assert roll_back(host, journal, undoes, boot) == ("rolled_back", "")
    assert image(virsh, guest) == before
    assert set(masks(started(libvirt, virsh, guest).pid).values()) == {BOTH}


def test_a_guest_that_was_saved_over_a_restart_of_the_host_and_runs_again_gets_its_affinity(
    host, libvirt, journal, start, virsh
):
    guest = start()
    apply(plan_of(host, whole(host, guest)), host, journal, boot="boot-1")
    save(virsh, guest)
    again = started(libvirt, virsh, guest)
    assert BOTH not in masks(again.pid).values()
    journal.end_earlier_boots("boot-2", NOON, lambda uuid: keeps_pins(uuid, host))
    assert roll_back(host, journal, "", "boot-2") == ("rolled_back", "")
    assert set(masks(again.pid).values()) == {BOTH}
    assert host.guests.named_pins(guest.uuid).live == ()


def test_a_pin_that_an_operator_has_made_since_stays_in_the_image(host, journal, start, virsh):
    guest = start()
    apply(plan_of(host, whole(host, guest)), host, journal)
    virsh("vcpupin", guest.name, "0", str(FIRST), "--live")
    save(virsh, guest)
    roll_back(host, journal, "run-1")
    assert re.findall("<[a-z]*pin .*/>", image(virsh, guest)) == [f"<vcpupin vcpu='0' cpuset='{FIRST}'/>"]


def test_a_pin_from_before_pinner_is_back_in_the_image(host, journal, libvirt, start, virsh):
    guest = start(extra=f"<cputune><vcpupin vcpu='0' cpuset='{FIRST}'/></cputune>")
    before = save(virsh, guest)
    guest = started(libvirt, virsh, guest)
    apply(plan_of(host, whole(host, guest)), host, journal)
    save(virsh, guest)
    assert roll_back(host, journal, "run-1") == ("rolled_back", "")
    assert image(virsh, guest) == before


def test_a_persisted_run_is_undone_in_the_definition_and_in_the_image(host, libvirt, journal, start, virsh):
    guest = start()
    definition = virsh("dumpxml", "--inactive", guest.name)
    before = save(virsh, guest)
    guest = started(libvirt, virsh, guest)
    apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    save(virsh, guest)
    assert roll_back(host, journal, "run-1") == ("rolled_back", "")
    assert image(virsh, guest) == before
    now = virsh("dumpxml", "--inactive", guest.name)
    assert re.sub(r"\s*<iothreadids>.*</iothreadids>", "", now, flags=re.DOTALL) == definition


def test_a_guest_that_is_removed_with_its_image_is_gone(host, journal, start_guest, virsh):
    guest = start_guest(persistent=True)
    apply(plan_of(host, whole(host, guest)), host, journal)
    save(virsh, guest)
    virsh("undefine", guest.name, "--managed-save")
    assert roll_back(host, journal, "") == ("rolled_back", "")
