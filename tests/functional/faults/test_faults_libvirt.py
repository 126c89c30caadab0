"""Faults of libvirt and QEMU during an apply: they hang, are busy, or are killed in the middle of a call."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import libvirt as libvirt_api
import private_libvirt
import pytest
import rights
from support.guests.real_guests import (
    FIRST,
    SECOND,
    apply,
    change,
    daemon,
    emulator,
    hung,
    only,
    plan_of,
    rollback,
    settle,
    vcpu,
    whole,
)
from support.system.kernel import THREADS, masks, process
from support.values import NOON, make_run
from support.waits import Waits

from pinner.apply import executor
from pinner.host.inventory import take_snapshot
from pinner.host.live import ROOT, LiveHost
from pinner.host.virt import libvirt_connections
from pinner.host.virt.libvirt import Libvirt
from pinner.model.errors import Busy
from pinner.model.guest.guest import Guest
from pinner.model.plan.request import Request
from pinner.model.run.journal import Entry
from pinner.planning import planner

pytestmark = pytest.mark.needs("two_cpus")

TIMEOUT = 1.0


@pytest.fixture
def bounded_host(libvirtd: str) -> LiveHost:
    """A host with a timeout of one second for calls of libvirt. It calls a guest that is known to hang, too."""
    return LiveHost(Libvirt(libvirtd, TIMEOUT, occupied_seconds=60))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Counts the waits for calls of libvirt. Seconds would depend on the machine's load. The calls themselves are
    real."""
    waits = Waits()
    monkeypatch.setattr(libvirt_connections, "Future", waits.future)
    yield waits
    waits.together = None


@contextmanager
def hung_throughout(libvirtd: str, guest: Guest) -> Iterator[None]:
    """A guest that hangs until the end of the context, which is asserted."""
    with hung(libvirtd, guest) as query:
        yield
        assert query.poll() is None, "the guest answered before the end of the test"


@contextmanager
def all_hung(libvirtd: str, guests: list[Guest]) -> Iterator[None]:
    with ExitStack() as every:
        for guest in guests:
            every.enter_context(hung_throughout(libvirtd, guest))
        yield


def test_a_guest_that_libvirt_cannot_describe_is_left_alone_and_the_others_are_found(
    libvirtd, start_guest, monkeypatch
):
    """No fault of a real libvirtd makes it refuse one guest's XML alone, so one answer is replaced."""
    guests = [start_guest() for _ in range(3)]
    unread = guests[1]
    describe = libvirt_api.virDomain.XMLDesc

    def refuse(domain, flags=0):
        if domain.UUIDString() == unread.uuid:
            raise libvirt_api.libvirtError("internal error: cannot format the XML")
        return describe(domain, flags)

    connection = Libvirt(libvirtd)
    monkeypatch.setattr(libvirt_api.virDomain, "XMLDesc", refuse)
    found = take_snapshot(ROOT, "h1", connection, sample_seconds=0.0, now=lambda: NOON)
    by_uuid = {guest.uuid: guest for guest in found.guests}
    assert set(by_uuid) >= {guest.uuid for guest in guests}
    left = by_uuid[unread.uuid]
    assert (left.pid, left.excluded, len(left.vcpus)) == (unread.pid, True, len(unread.vcpus))
    assert all(vcpu.thread for vcpu in left.vcpus)
    immovable = {each.pid: {thread.immovable_reason for thread in each.threads} for each in found.processes}
    assert immovable[unread.pid] == immovable[guests[0].pid] == {"guest"}
    (warning,) = (each for each in found.warnings if unread.name in each)
    assert "cannot be read: libvirt: internal error" in warning
    plan = planner.plan(found, "s", Request(guests=tuple(guest.name for guest in guests), processes=()))
    moved = {change.target.owner for change in plan.changes}
    assert moved >= {guests[0].uuid, guests[2].uuid}
    assert unread.uuid not in moved
    assert LiveHost(connection).bounds().excluded >= {unread.uuid}


@pytest.mark.fault(18)
def test_a_stopped_qemu_can_be_pinned_and_rolled_back(bounded_host, journal, start_guest, counted):
    guest = start_guest()
    os.kill(guest.pid, signal.SIGSTOP)
    try:
        assert apply(plan_of(bounded_host, whole(bounded_host, guest)), bounded_host, journal).state == "applied"
        assert rollback(bounded_host, journal).state == "rolled_back"
        assert counted.timeouts == []
    finally:
        os.kill(guest.pid, signal.SIGCONT)


@pytest.mark.fault(18)
def test_a_hung_guest_does_not_delay_the_undo_of_others(bounded_host, journal, start_guest, libvirtd, counted):
    """The guest's change and its undo each wait for one timeout, and all other changes are undone without a wait.

    The change of the guest can be rolled back once its QEMU runs again.
    """
    others, guest = (start_guest(), start_guest()), start_guest()
    before = {each.pid: masks(each.pid) for each in (*others, guest)}
    plan = plan_of(bounded_host, [part for each in (*others, guest) for part in whole(bounded_host, each)])
    progressed: list[tuple[str, str]] = []

    def progress(entry: Entry, total: int) -> None:
        progressed.append((entry.change.target.name, entry.state))

    with hung_throughout(libvirtd, guest):
        run = executor.apply(plan, make_run(all_or_nothing=True), bounded_host, journal, lambda: NOON, progress)
        now = masks(others[0].pid) | masks(others[1].pid)
    assert (run.state, run.error) == (
        "failed",
        f"guest {guest.name} metadata: no answer from libvirt within 1 s ([libvirt] call_timeout); try again later",
    )
    assert counted.timeouts == [TIMEOUT, TIMEOUT]
    assert [name for name, state in progressed if state == "stuck"] == [guest.name]
    of_others = [state for name, state in progressed if name != guest.name]
    # The pins of each guest, and the metadata that names them.
    assert (
        of_others.count("done") == of_others.count("undone") == len(plan.changes) - len(whole(bounded_host, guest)) + 2
    )
    assert now == only(before[others[0].pid] | before[others[1].pid], now)
    settle(bounded_host)
    assert rollback(bounded_host, journal).state == "rolled_back"
    now = masks(guest.pid)
    assert now == only(before[guest.pid], now)


@pytest.mark.fault(18)
def test_guests_that_hang_are_waited_for_together(bounded_host, journal, start_guest, libvirtd, counted):
    """In an apply and in a rollback, no wait for one of four guests that hang ends before the other three have begun. A
    fifth guest is placed and rolled back meanwhile."""
    hanging, other = [start_guest() for _ in range(4)], start_guest()
    before = {each.pid: masks(each.pid) for each in (*hanging, other)}
    plan = plan_of(bounded_host, [part for each in (*hanging, other) for part in whole(bounded_host, each)])
    undo = make_run("back-2", kind="rollback", undoes="run-2")
    with all_hung(libvirtd, hanging):
        counted.together = threading.Barrier(4)
        assert apply(plan, bounded_host, journal).state == "applied_partly"
        assert counted.timeouts == [TIMEOUT] * 8, "two for each guest"
        counted.together = None
    settle(bounded_host)
    assert rollback(bounded_host, journal).state == "rolled_back"
    assert (
        executor.apply(plan, make_run("run-2"), bounded_host, journal, lambda: NOON, lambda *_: None).state == "applied"
    )
    counted.timeouts.clear()
    with all_hung(libvirtd, hanging):
        counted.together = threading.Barrier(4)
        run = executor.rollback(undo, bounded_host, journal, lambda: NOON, lambda *_: None)
        assert len(counted.timeouts) in (4, 8), "one or two for each guest"
        counted.together = None
        assert run.state == "rolled_back_partly"
        assert masks(other.pid) == only(before[other.pid], masks(other.pid))
    settle(bounded_host)
    again = replace(undo, id="again")
    assert executor.rollback(again, bounded_host, journal, lambda: NOON, lambda *_: None).state == "rolled_back"
    for guest in (*hanging, other):
        now = masks(guest.pid)
        assert now == only(before[guest.pid], now)


@pytest.mark.fault(18)
@pytest.mark.parametrize("whole_run", [True, False])
def test_a_hung_guest_is_waited_for_twice(bounded_host, journal, start_guest, libvirtd, counted, whole_run):
    """The change of its metadata waits for the timeout, and so does its undo; the guest's pins are not tried."""
    guest = start_guest()
    plan = plan_of(bounded_host, whole(bounded_host, guest))
    with hung_throughout(libvirtd, guest):
        new = make_run(all_or_nothing=whole_run)
        run = executor.apply(plan, new, bounded_host, journal, lambda: NOON, lambda *_: None)
    assert run.state == "failed"
    assert counted.timeouts == [TIMEOUT, TIMEOUT]
    settle(bounded_host)
    assert rollback(bounded_host, journal).state == "rolled_back"


@pytest.mark.fault(18)
def test_a_late_change_is_undone_when_the_guest_runs_again(bounded_host, journal, start_guest, libvirtd):
    """The late change is undone without any request."""
    guest = start_guest()
    before = masks(guest.pid)
    with hung_throughout(libvirtd, guest):
        assert (
            apply(plan_of(bounded_host, [change(bounded_host, vcpu(guest), SECOND)]), bounded_host, journal).state
            == "failed"
        )
    settle(bounded_host)
    now = masks(guest.pid)
    assert now == only(before, now)


@pytest.mark.fault(17)
def test_a_guest_with_another_job_is_busy(start_guest, libvirtd, journal):
    """libvirt itself fails after 30 s (code 68); pinner's timeout is shorter. The call can be tried again."""
    host = LiveHost(Libvirt(libvirtd, TIMEOUT / 2))
    guest = start_guest()
    with hung_throughout(libvirtd, guest):
        with pytest.raises(Busy, match=r"no answer from libvirt within 0\.5 s") as caught:
            host.pin(vcpu(guest), FIRST, persist=False)
        assert caught.value.details["overdue"] is True
        assert host.masks(vcpu(guest)), "reading the masks failed"
        assert len(Libvirt(libvirtd).guests(ROOT)) >= 1
    host.pin(vcpu(guest), FIRST, persist=False)
    assert str(host.masks(vcpu(guest))[0].cpus) == str(FIRST)


@pytest.fixture
def own_libvirtd(room_for_libvirtd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Libvirt, Guest]]:
    """A libvirtd of this test, which may kill it: its folder, a connection and a guest."""
    folder = tmp_path_factory.mktemp("own") / "d"
    with private_libvirt.private_libvirtd(folder) as uri:
        libvirt = Libvirt(uri)
        private_libvirt.start_guest(uri, private_libvirt.guest_xml(f"own-{os.getpid()}"), paused=True)
        yield folder, libvirt, libvirt.guests(ROOT)[0]


def libvirtd_of(folder: Path) -> int:
    return int((folder / "libvirtd.pid").read_text())


@contextmanager
def restarted(folder: Path, guest: Guest) -> Iterator[None]:
    """Start the libvirtd again, as systemd does, where its guests are."""
    daemon = ["libvirtd", "-f", f"{folder}/etc/libvirtd.conf", "-p", f"{folder}/libvirtd.pid"]
    enter = [] if rights.lacking("mounts") else ["nsenter", "-t", str(guest.pid), "-m"]
    command = [*enter, "env", f"PATH={os.environ['PATH']}:/usr/sbin:/sbin", *daemon]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True) as running:
        try:
            yield
        finally:
            running.terminate()


def wait_until_it_answers(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(subprocess.CalledProcessError):
            private_libvirt.virsh(private_libvirt.uri(folder), "list")
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.fault(19)
def test_an_apply_completes_after_libvirtd_was_killed_during_a_call(own_libvirtd, journal):
    """A stopped libvirtd is killed during a call, so that its result is unknown; pinner repeats the call.

    The result is read back from the kernel.
    """
    folder, libvirt, guest = own_libvirtd
    host = LiveHost(libvirt)
    before = masks(guest.pid)
    plan = plan_of(host, whole(host, guest))
    libvirt.persistent(guest.uuid)
    os.kill(libvirtd_of(folder), signal.SIGSTOP)
    kill = threading.Timer(0.5, os.kill, (libvirtd_of(folder), signal.SIGKILL))
    kill.start()
    applying = ThreadPoolExecutor(1).submit(apply, plan, host, journal)
    kill.join()
    assert not applying.done()
    with restarted(folder, guest):
        run = applying.result(20)
        assert (run.state, run.error) == ("applied", "")
        planned = {thread.tid: str(each.after) for each in plan.changes for thread in each.before}
        now = masks(guest.pid)
        assert only(now, planned) == only(planned, now)
        assert rollback(host, journal).state == "rolled_back"
    now = masks(guest.pid)
    assert now == only(before, now)


@pytest.mark.fault(19)
@pytest.mark.parametrize("whole_run", [True, False])
def test_changes_of_processes_do_not_need_libvirtd(own_libvirtd, journal, whole_run):
    """Without libvirt, processes stay placed, or their changes are undone with all others; the error names the changes
    of guests.

    The changes of guests are rolled back once libvirtd runs again.
    """
    folder, _, guest = own_libvirtd
    host = LiveHost(Libvirt(private_libvirt.uri(folder), 2 * TIMEOUT))

    def progress(entry: Entry, total: int) -> None:
        if entry.state == "done" and entry.change.target.kind == "emulator":
            os.kill(libvirtd_of(folder), signal.SIGKILL)

    with process(THREADS.format(count=2)) as pid:
        before = masks(pid) | masks(guest.pid)
        targets = (daemon(pid), emulator(guest), vcpu(guest))
        wanted = [change(host, target, FIRST) for target in targets]
        new = make_run(all_or_nothing=whole_run)
        run = executor.apply(plan_of(host, wanted), new, host, journal, lambda: NOON, progress)
        assert run.state == ("failed" if whole_run else "applied_partly")
        assert "libvirt does not answer" in run.error
        process_state = "undone" if whole_run else "done"
        assert [entry.state for entry in journal.entries("run-1")] == [process_state, "stuck", "stuck", "failed"]
        assert masks(pid) == (only(before, masks(pid)) if whole_run else dict.fromkeys(masks(pid), str(FIRST)))
        with restarted(folder, guest):
            wait_until_it_answers(folder)
            assert rollback(host, journal).state == "rolled_back"
        now = masks(pid) | masks(guest.pid)
        assert now == only(before, now)
