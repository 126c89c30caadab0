"""Rollbacks of applied plans on real guests: masks and persistent definitions."""

import os
import re

import private_libvirt
import pytest
from support import needs
from support.guests.real_guests import (
    FIRST,
    SECOND,
    apply,
    change,
    emulator,
    entries,
    only,
    plan_of,
    rollback,
    vcpu,
    whole,
)
from support.system.kernel import allowed, masks

from pinner.model.errors import Invalid

pytestmark = pytest.mark.needs("two_cpus")


@pytest.mark.fault(25)
def test_emulator_threads_with_different_masks_are_restored_exactly(host, journal, start_guest):
    guest = start_guest()
    others = [thread.tid for thread in guest.emulator.threads if thread.tid != guest.pid]
    os.sched_setaffinity(others[0], SECOND)
    before = masks(guest.pid)
    plan = plan_of(host, [change(host, emulator(guest), FIRST)])
    assert apply(plan, host, journal).state == "applied"
    assert allowed(others[0]) == str(FIRST)
    assert rollback(host, journal).state == "rolled_back"
    assert only(masks(guest.pid), before) == only(before, masks(guest.pid))
    assert allowed(others[0]) == str(SECOND)


def test_a_restarted_guest_is_not_rolled_back(host, journal, start_guest, libvirtd):
    guest = start_guest(persistent=True)
    apply(plan_of(host, whole(host, guest)), host, journal)
    private_libvirt.virsh(libvirtd, "destroy", guest.name)
    private_libvirt.virsh(libvirtd, "start", guest.name, "--paused")
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(FIRST), "--live")
    run = rollback(host, journal)
    assert (run.state, run.error.count("was restarted since")) == ("rolled_back_partly", 3)
    pinned = host.masks(vcpu(guest))[0]
    assert allowed(pinned.tid) == str(FIRST)


def test_a_thread_moved_by_another_program_is_named_and_not_moved(host, journal, start_guest, libvirtd):
    guest = start_guest(vcpus=2)
    before = masks(guest.pid)
    apply(plan_of(host, whole(host, guest)), host, journal)
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "1", str(FIRST), "--live")
    tid = guest.vcpus[1].thread.tid
    assert rollback(host, journal).state == "rolled_back_partly"
    assert (
        f"thread {tid} was moved to {FIRST} by another program or a later run, and stays there"
        in dict(entries(journal))["stuck"]
    )
    now = masks(guest.pid)
    assert only(now, before) == only(before | {tid: str(FIRST)}, now)


CPUTUNE = re.compile(r"<cputune>.*</cputune>", re.DOTALL)
VNC = "<graphics type='vnc' port='-1' autoport='yes' passwd='secret'/>"
TUNES = {
    "none": "",
    "other pins": f"<cputune><shares>2048</shares><vcpupin vcpu='1' cpuset='{FIRST}'/></cputune>",
    "the same pins": f"<cputune><vcpupin vcpu='0' cpuset='{FIRST}'/><emulatorpin cpuset='{SECOND}'/></cputune>",
}


@pytest.mark.parametrize("tune", TUNES)
def test_persist_writes_the_definition_and_rollback_restores_it(host, journal, start_guest, libvirtd, tune):
    if "<shares>" in TUNES[tune]:
        needs.require("guest_cgroups")
    guest = start_guest(persistent=True, extra=TUNES[tune], devices=VNC)

    def definition() -> str:
        """The persistent XML without the ids of iothreads, which libvirt lists only after their first pin."""
        xml = private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", "--security-info", guest.name)
        return xml.replace("  <iothreadids>\n    <iothread id='1'/>\n  </iothreadids>\n", "")

    before = definition()
    assert apply(plan_of(host, whole(host, guest)), host, journal, persist=True).state == "applied"
    written = CPUTUNE.search(definition())
    assert written is not None
    assert re.findall(r"<(?:vcpupin vcpu='(\d)'|(emulator)pin|(io)threadpin .*?) cpuset='(\S+?)'", written[0]) == [
        ("0", "", "", str(SECOND)),
        ("1", "", "", str(SECOND)),
        ("", "emulator", "", str(FIRST)),
        ("", "", "io", str(FIRST)),
    ]
    assert "passwd='secret'" in definition()
    assert rollback(host, journal).state == "rolled_back"
    assert definition() == before


@pytest.mark.fault(52)
def test_a_pin_that_an_operator_changed_in_the_definition_stays_and_is_named(host, journal, start_guest, libvirtd):
    """The operator changes one pin after the apply; only pinner's own pins are taken back."""
    guest = start_guest(persistent=True)
    assert apply(plan_of(host, whole(host, guest)), host, journal, persist=True).state == "applied"
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(FIRST), "--config")
    run = rollback(host, journal)
    assert run.state == "rolled_back_partly"
    assert f"it is pinned to {FIRST} by an operator or another program since, and stays so" in run.error
    xml = private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", guest.name)
    assert re.findall(r"<(\w+pin) (?:vcpu='(\d)' )?cpuset='(\S+?)'", xml) == [("vcpupin", "0", str(FIRST))]


@pytest.mark.fault(52, 72)
@pytest.mark.parametrize("order", [("run-1", "run-2"), ("run-2", "run-1"), ("",)], ids=" ".join)
def test_a_pin_that_an_operator_wrote_between_two_runs_is_back_after_them(host, journal, start_guest, libvirtd, order):
    """Both runs write the same pin; the operator's is in the running guest, too."""
    guest = start_guest(persistent=True)
    before = masks(guest.pid)
    for run in ("run-1", "run-2"):
        plan = plan_of(host, [change(host, vcpu(guest), SECOND)])
        assert apply(plan, host, journal, run=run, persist=True).state == "applied"
        if run == "run-1":
            private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", str(FIRST), "--config", "--live")
    errors = [rollback(host, journal, run).error for run in order]
    assert errors[0] == ""
    xml = private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", guest.name)
    assert re.findall(r"<(\w+pin) (?:vcpu='(\d)' )?cpuset='(\S+?)'", xml) == [("vcpupin", "0", str(FIRST))]
    assert "urn:pinner" not in xml
    moved = {guest.vcpus[0].thread.tid: str(FIRST)} if order[0] == "run-2" else {}
    now = masks(guest.pid)
    assert only(now, before) == only(before | moved, now)


@pytest.mark.fault(22)
def test_a_guest_that_was_undefined_since_is_not_defined_again(host, journal, start_guest, libvirtd):
    guest = start_guest(persistent=True)
    apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    private_libvirt.virsh(libvirtd, "undefine", guest.name)
    assert rollback(host, journal).state == "rolled_back"
    assert guest.name in private_libvirt.virsh(libvirtd, "list", "--name", "--transient").split()


@pytest.mark.fault(22)
def test_persist_of_a_transient_guest_is_refused(host, journal, start_guest):
    guest = start_guest()
    before = masks(guest.pid)
    with pytest.raises(Invalid, match=f"persist: '{guest.name}' is not valid: a guest with a persistent definition"):
        apply(plan_of(host, whole(host, guest)), host, journal, persist=True)
    assert masks(guest.pid) == before
