"""Plans applied to real guests and processes and rolled back; the tests read the masks from the kernel."""

import os
import re
import threading
from dataclasses import replace

import private_libvirt
import pytest
from support.guests.real_guests import (
    FIRST,
    ONLINE,
    SECOND,
    apply,
    change,
    daemon,
    entries,
    expected,
    only,
    plan_of,
    rollback,
    whole,
)
from support.system.kernel import THREAD_CHURN, THREADS, cpuset, masks, process, started
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.host.live import LiveHost
from pinner.model.change import AffinityChange, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import StalePlan
from pinner.model.run.journal import Entry
from pinner.store.journal.journal import StoredJournal

pytestmark = pytest.mark.needs("two_cpus")


@pytest.mark.fault(9)
def test_apply_moves_every_thread_and_rollback_restores_every_mask(host, journal, start_guest):
    guest = start_guest(vcpus=2, iothreads=2)
    with process(THREADS.format(count=5)) as pid:
        tids = sorted(masks(pid))
        os.sched_setaffinity(tids[1], SECOND)
        os.sched_setaffinity(tids[2], FIRST)
        before = masks(pid) | masks(guest.pid)
        assert len(set(before.values())) == 3
        plan = plan_of(host, [*whole(host, guest), change(host, daemon(pid), FIRST)])

        assert apply(plan, host, journal).state == "applied"
        now = masks(pid) | masks(guest.pid)
        assert only(now, before) == only(expected(plan), now)
        assert set(entries(journal)) == {("done", "")}

        assert apply(plan, host, journal, run="run-2").state == "applied"
        assert journal.entries("run-2") == ()

        assert rollback(host, journal).state == "rolled_back"
        now = masks(pid) | masks(guest.pid)
        assert now == only(before, now)


def test_guests_are_pinned_through_libvirt(host, journal, start_guest, libvirtd):
    """libvirt's XML shows the pins."""
    guest = start_guest()
    apply(plan_of(host, whole(host, guest)), host, journal)
    live = private_libvirt.virsh(libvirtd, "dumpxml", guest.name)
    assert re.findall(r"<(vcpupin|emulatorpin|iothreadpin) .*?cpuset='(\S+?)'", live) == [
        ("vcpupin", str(SECOND)),
        ("vcpupin", str(SECOND)),
        ("emulatorpin", str(FIRST)),
        ("iothreadpin", str(FIRST)),
    ]


@pytest.mark.fault(8)
def test_threads_created_during_an_apply_or_rollback_are_moved_too(host, journal):
    with process(THREAD_CHURN) as pid:
        plan = plan_of(host, [change(host, daemon(pid), FIRST)])
        assert apply(plan, host, journal).state == "applied"
        for _ in range(20):
            assert set(masks(pid).values()) == {str(FIRST)}
        assert rollback(host, journal).state == "rolled_back"
        for _ in range(20):
            assert set(masks(pid).values()) == {str(CpuSet.of(ONLINE))}


@pytest.mark.parametrize("when", ["after the plan", "before the rollback"])
def test_an_ended_process_is_reported_as_gone(host, journal, when):
    with process(THREADS.format(count=2)) as pid:
        plan = plan_of(host, [change(host, daemon(pid), FIRST)])
        if when == "before the rollback":
            apply(plan, host, journal)
    if when == "before the rollback":
        run = rollback(host, journal)
        assert (run.state, run.error[-8:]) == ("rolled_back_partly", " is gone")
    else:
        assert apply(plan, host, journal).state == "applied"
    assert entries(journal)[0][0] == "gone"


@pytest.mark.fault(10)
def test_a_reused_pid_is_not_touched(host, journal):
    """The plan names the process with an earlier start time, as if its pid had been reused since."""
    with process(THREADS.format(count=2)) as pid:
        before = masks(pid)
        old = replace(daemon(pid), part=started(pid) - 1)
        ghosts = tuple(ThreadMask(tid, started(pid) - 1, CpuSet.of(ONLINE)) for tid in before)
        assert apply(plan_of(host, [AffinityChange(old, ghosts, FIRST, "a test")]), host, journal).state == "applied"
        assert entries(journal) == [("gone", f"process busyd ({pid}) is gone")]
        assert masks(pid) == before


@pytest.mark.fault(21)
def test_a_guest_killed_during_the_apply_is_gone_and_other_guests_are_applied(host, journal, start_guest, kill):
    first, second = start_guest(), start_guest()
    plan = plan_of(host, [*whole(host, first), *whole(host, second)])
    killed: list[bool] = []

    def progress(entry: Entry, total: int) -> None:
        # The first call comes before any change. Both guests are changed at once after it.
        if not killed:
            killed.append(True)
            kill(second)

    run = executor.apply(plan, make_run(), host, journal, lambda: NOON, progress)
    assert run.state == "applied"
    by_guest = {(entry.change.target.name, entry.state) for entry in journal.entries("run-1")}
    assert by_guest == {(first.name, "done"), (second.name, "gone")}
    assert only(masks(first.pid), expected(plan)) == only(expected(plan), masks(first.pid))


@pytest.mark.fault(7)
@pytest.mark.needs("cpusets")
def test_a_failed_change_undoes_all_other_changes(host, journal, start_guest):
    """The cpuset of the last process does not have the planned CPU."""
    guest = start_guest()
    idle = THREADS.format(count=3)
    with process(idle) as free, process(idle) as bound, cpuset(str(FIRST), bound) as path:
        before = masks(guest.pid) | masks(free) | masks(bound)
        last = [change(host, daemon(free), SECOND), change(host, daemon(bound), SECOND)]
        run = apply(plan_of(host, [*whole(host, guest), *last]), host, journal, all_or_nothing=True)
        assert run.state == "undone"
        assert f"requested CPUs {SECOND}" in run.error
        assert f"cgroup {path.lstrip('/')} allows CPUs {FIRST}" in run.error
        now = masks(guest.pid) | masks(free) | masks(bound)
        assert now == only(before, now)
        assert [state for state, _ in entries(journal)] == ["undone"] * 6 + ["failed"]


def test_a_plan_is_refused_after_another_program_pinned_a_vcpu(host, journal, start_guest, libvirtd):
    guest = start_guest()
    plan = plan_of(host, whole(host, guest))
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "1", str(FIRST), "--live")
    before = masks(guest.pid)
    with pytest.raises(StalePlan, match=f"guest {guest.name} vcpu 1 thread .* may run on {FIRST}, no longer on"):
        apply(plan, host, journal)
    assert masks(guest.pid) == before


def test_a_plan_is_refused_after_its_guest_was_restarted(host, journal, start_guest, libvirtd):
    guest = start_guest(persistent=True)
    plan = plan_of(host, whole(host, guest))
    private_libvirt.virsh(libvirtd, "destroy", guest.name)
    with pytest.raises(StalePlan, match="is gone"):
        apply(plan, host, journal)
    private_libvirt.virsh(libvirtd, "start", guest.name, "--paused")
    with pytest.raises(StalePlan, match="was restarted"):
        apply(plan, host, journal, run="run-2")


def test_two_concurrent_applies_leave_the_host_as_planned(libvirt, journal, tmp_path, start_guest):
    """One apply makes the changes; the other one is refused, or has nothing to change."""
    guest = start_guest()
    plan = plan_of(LiveHost(libvirt), whole(LiveHost(libvirt), guest))
    ended: list[str] = []

    def run(name: str) -> None:
        own = StoredJournal(tmp_path)
        try:
            ended.append(apply(plan, LiveHost(libvirt), own, run=name).state)
        except Exception as error:
            ended.append(type(error).__name__)
        finally:
            own.close()

    both = [threading.Thread(target=run, args=(name,)) for name in ("run-1", "run-2")]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert "applied" in ended
    assert set(ended) <= {"applied", "undone", "StalePlan", "HostBusy"}
    assert only(masks(guest.pid), expected(plan)) == only(expected(plan), masks(guest.pid))
