"""Faults of guests between a plan, its apply and its rollback, and masks that cannot be set."""

import os
import re

import libvirt as bindings
import private_libvirt
import pytest
from support.guests.real_guests import (
    FIRST,
    ONLINE,
    SECOND,
    apply,
    change,
    cpuset_of,
    emulator,
    entries,
    expected,
    iothread,
    only,
    plan_of,
    rollback,
    vcpu,
    whole,
)
from support.system.kernel import allowed, masks
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.host.live import ROOT, LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, NotPermitted, StalePlan
from pinner.model.run.journal import Entry

pytestmark = pytest.mark.needs("two_cpus")


@pytest.mark.fault(12)
def test_a_rollback_ignores_a_vcpu_that_was_plugged_in_after_the_apply(host, journal, start_guest, libvirtd):
    guest = start_guest(vcpus=2, plugged=1, paused=False)
    before = masks(guest.pid)
    assert apply(plan_of(host, changes_of_plugged(host, guest)), host, journal).state == "applied"
    private_libvirt.virsh(libvirtd, "setvcpus", guest.name, "2", "--live")
    assert host.parts(guest.uuid) == {("vcpu", 0), ("vcpu", 1), ("iothread", 1)}
    assert rollback(host, journal).state == "rolled_back"
    now = masks(guest.pid)
    assert only(now, before) == only(before, now)


def changes_of_plugged(host, guest):
    targets = (emulator(guest), iothread(guest), vcpu(guest, 0))
    return [change(host, target, FIRST if target.kind != "vcpu" else SECOND) for target in targets]


@pytest.mark.fault(16)
@pytest.mark.parametrize("verb", ["destroy", "managedsave"])
def test_a_guest_that_ends_during_the_apply_is_gone_and_other_guests_are_applied(
    host, journal, start_guest, libvirtd, verb
):
    """destroy has the effect of a migration: the process ends and libvirt has no such guest any more (code 42)."""
    staying, leaving = start_guest(), start_guest(persistent=verb == "managedsave", paused=verb == "destroy")
    plan = plan_of(host, [*whole(host, staying), *whole(host, leaving)])

    def progress(entry: Entry, total: int) -> None:
        # The first call comes before any change. Both guests are changed at once after it.
        if entry.state == "intent" and entry.seq == 1:
            private_libvirt.virsh(libvirtd, verb, leaving.name)

    run = executor.apply(plan, make_run(), host, journal, lambda: NOON, progress)
    assert run.state == "applied"
    ends = {(entry.change.target.name, entry.state) for entry in journal.entries("run-1")}
    assert ends == {(staying.name, "done"), (leaving.name, "gone")}
    assert only(masks(staying.pid), expected(plan)) == only(expected(plan), masks(staying.pid))
    undo = rollback(host, journal)
    assert (undo.state, undo.error) == ("rolled_back", "")


@pytest.mark.fault(21)
def test_a_guest_killed_before_the_rollback_is_named(host, journal, start_guest, kill):
    guest = start_guest()
    assert apply(plan_of(host, whole(host, guest)), host, journal).state == "applied"
    kill(guest)
    run = rollback(host, journal)
    assert run.state == "rolled_back_partly"
    assert run.error.startswith("5 of 5 changes could not be undone: guest ")
    assert {state for state, _ in entries(journal)} == {"gone"}
    with pytest.raises(Gone):
        host.pin(vcpu(guest), FIRST, persist=False)


@pytest.mark.fault(20)
def test_a_rollback_names_a_thread_moved_by_its_cpuset_and_does_not_move_it(host, journal, start_guest):
    """libvirt still reports the old pin; the kernel has the actual mask."""
    guest = start_guest()
    tid = guest.vcpus[0].thread.tid
    before = masks(guest.pid)
    assert apply(plan_of(host, whole(host, guest)), host, journal).state == "applied"
    (cpuset_of(tid) / "cpuset.cpus").write_text(str(FIRST))
    assert allowed(tid) == str(FIRST)
    run = rollback(host, journal)
    assert run.state == "rolled_back_partly"
    assert f"thread {tid} was moved to {FIRST} by another program or a later run, and stays there" in run.error
    now = masks(guest.pid)
    assert only(now, before) == only(before | {tid: str(FIRST)}, now)


@pytest.mark.fault(22)
def test_a_paused_guest_is_pinned_and_rolled_back(host, journal, start_guest, libvirtd):
    guest = start_guest(paused=True)
    before = masks(guest.pid)
    assert private_libvirt.virsh(libvirtd, "domstate", guest.name).strip() == "paused"
    assert apply(plan_of(host, whole(host, guest)), host, journal).state == "applied"
    assert rollback(host, journal).state == "rolled_back"
    assert masks(guest.pid) == only(before, masks(guest.pid))


@pytest.mark.fault(22)
def test_the_error_names_a_read_only_connection(libvirtd, start_guest, monkeypatch):
    guest = start_guest()
    monkeypatch.setattr(bindings, "open", bindings.openReadOnly)
    with pytest.raises(NotPermitted, match=r"guest \S+ vcpu 0: .*read only"):
        LiveHost(Libvirt(libvirtd)).pin(vcpu(guest), FIRST, persist=False)


@pytest.mark.fault(23)
@pytest.mark.parametrize("cpus", ["63", "0,63", "8191"])
def test_an_absent_cpu_is_refused_before_any_change(host, journal, start_guest, cpus):
    """libvirt would fail with "Empty cpu list", or ignore the CPU silently."""
    guest = start_guest()
    before = masks(guest.pid)
    wanted = CpuSet.parse(cpus)
    with pytest.raises(ApplyFailed, match=f"CPUs {wanted - CpuSet.of(ONLINE)} are not online"):
        host.pin(vcpu(guest), wanted, persist=False)
    run = apply(plan_of(host, [change(host, emulator(guest), FIRST), change(host, vcpu(guest), wanted)]), host, journal)
    assert (run.state, f"CPUs {wanted - CpuSet.of(ONLINE)} are not online" in run.error) == ("undone", True)
    assert masks(guest.pid) == only(before, masks(guest.pid))


@pytest.mark.fault(24)
def test_a_vcpu_that_is_not_plugged_in_is_gone(host, journal, start_guest):
    """libvirt would accept and store the pin."""
    guest = start_guest(vcpus=2, plugged=1)
    with pytest.raises(Gone, match="vcpu 1 is gone"):
        host.masks(vcpu(guest, 1))
    assert host.parts(guest.uuid) == {("vcpu", 0), ("iothread", 1)}
    missing = AffinityChange(vcpu(guest, 1), (), SECOND, "a test")
    with pytest.raises(StalePlan, match="vcpu 1 is gone"):
        apply(plan_of(host, [missing]), host, journal)


@pytest.mark.fault(25)
@pytest.mark.parametrize("where", ["", str(SECOND)], ids=["floats everywhere", "confined by <vcpu cpuset>"])
def test_a_rollback_restores_the_mask_of_an_unpinned_vcpu(host, journal, start_guest, libvirtd, where):
    """A re-pin to all CPUs would widen a vCPU that <vcpu cpuset='...'> confines."""
    name = f"test-{os.getpid()}-unpinned-{where or 'all'}"
    xml = private_libvirt.guest_xml(name)
    if where:
        xml = re.sub("<vcpu ", f"<vcpu placement='static' cpuset='{where}' ", xml)
    private_libvirt.start_guest(libvirtd, xml, paused=True)
    guest = next(each for each in Libvirt(libvirtd).guests(ROOT) if each.name == name)
    before = masks(guest.pid)
    assert {before[each.thread.tid] for each in guest.vcpus} == {where or str(CpuSet.of(ONLINE))}
    plan = plan_of(host, [*whole(host, guest)[:-2], *(change(host, vcpu(guest, n), FIRST) for n in (0, 1))])
    assert apply(plan, host, journal).state == "applied"
    assert rollback(host, journal).state == "rolled_back"
    now = masks(guest.pid)
    assert now == only(before, now)
    assert vcpu_pins(libvirtd, guest.name) == {where or str(CpuSet.of(ONLINE))}, (
        "libvirt lists pins of the initial mask"
    )


def vcpu_pins(libvirtd: str, name: str) -> set[str]:
    return set(re.findall(r"<vcpupin vcpu='\d' cpuset='(\S+)'", private_libvirt.virsh(libvirtd, "dumpxml", name)))
