"""What libvirt and QEMU do to an apply: they hang, they are busy, they die in the middle of a call."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import private_libvirt
import pytest
from support.kernel import THREADS, masks, process
from support.real_guests import (
    FIRST,
    ONLINE,
    SECOND,
    apply,
    change,
    daemon,
    emulator,
    hung,
    only,
    plan_of,
    rollback,
    vcpu,
    whole,
)
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.host.libvirt import Libvirt
from pinner.host.live import ROOT, LiveHost
from pinner.model.errors import Busy
from pinner.model.guest import Guest
from pinner.model.journal import Entry

pytestmark = pytest.mark.skipif(len(ONLINE) < 2, reason="needs two CPUs")

BOUND = 1.0


@pytest.fixture
def brisk(libvirtd: str) -> LiveHost:
    """A host whose libvirt is waited for no longer than a second."""
    return LiveHost(Libvirt(libvirtd, BOUND))


@contextmanager
def hung_throughout(libvirtd: str, guest: Guest) -> Iterator[None]:
    """A guest that hangs until the end."""
    with hung(libvirtd, guest) as asking:
        yield
        assert asking.poll() is None, "it hung all the time"


@pytest.mark.fault(18)
def test_a_stopped_qemu_is_pinned_all_the_same(brisk, journal, start_guest):
    guest = start_guest()
    os.kill(guest.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert apply(plan_of(brisk, whole(brisk, guest)), brisk, journal).state == "applied"
        assert rollback(brisk, journal).state == "rolled_back"
        assert time.monotonic() - began < BOUND
    finally:
        os.kill(guest.pid, signal.SIGCONT)


@pytest.mark.fault(18)
def test_a_guest_that_hangs_delays_itself_alone(brisk, journal, start_guest, libvirtd):
    """Its change fails within the bound, and so does its undo; all others are taken back. What is left of it is taken
    back when it goes on."""
    others, guest = (start_guest(), start_guest()), start_guest()
    before = {each.pid: masks(each.pid) for each in (*others, guest)}
    plan = plan_of(brisk, [part for each in (*others, guest) for part in whole(brisk, each)])
    told: list[tuple[str, str]] = []

    def progress(entry: Entry, total: int) -> None:
        told.append((entry.change.target.name, entry.state))

    with hung_throughout(libvirtd, guest):
        began = time.monotonic()
        run = executor.apply(plan, make_run(), brisk, journal, lambda: NOON, progress)
        took = time.monotonic() - began
        now = masks(others[0].pid) | masks(others[1].pid)
    assert (run.state, run.error) == (
        "failed",
        f"guest {guest.name} emulator: no answer from libvirt within 1 s ([libvirt] call_timeout); try again later",
    )
    assert 2 * BOUND <= took < 2 * BOUND + 1.5
    assert [name for name, state in told if state == "stuck"] == [guest.name]
    assert [state for name, state in told if name != guest.name].count("undone") == 8
    assert now == only(before[others[0].pid] | before[others[1].pid], now)
    time.sleep(1)
    assert rollback(brisk, journal).state == "rolled_back"
    now = masks(guest.pid)
    assert now == only(before[guest.pid], now)


@pytest.mark.fault(18)
def test_what_was_overdue_is_undone_when_the_guest_goes_on(brisk, journal, start_guest, libvirtd):
    """Though nobody asks for it."""
    guest = start_guest()
    before = masks(guest.pid)
    with hung_throughout(libvirtd, guest):
        assert apply(plan_of(brisk, [change(brisk, vcpu(guest), SECOND)]), brisk, journal).state == "failed"
    time.sleep(1)
    now = masks(guest.pid)
    assert now == only(before, now)


@pytest.mark.fault(17)
def test_a_guest_with_another_job_is_busy(start_guest, libvirtd, journal):
    """libvirt itself gives up after 30 s (code 68); here the bound is ours. It can be tried again."""
    host = LiveHost(Libvirt(libvirtd, BOUND / 2))
    guest = start_guest()
    with hung_throughout(libvirtd, guest):
        with pytest.raises(Busy, match=r"no answer from libvirt within 0\.5 s") as caught:
            host.pin(vcpu(guest), FIRST, persist=False)
        assert caught.value.details["overdue"] is True
        assert host.masks(vcpu(guest)), "reads are fine"
        assert len(Libvirt(libvirtd).guests(ROOT)) >= 1
    host.pin(vcpu(guest), FIRST, persist=False)
    assert str(host.masks(vcpu(guest))[0].cpus) == str(FIRST)


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Libvirt, Guest]]:
    """A libvirtd to be killed, with a guest."""
    folder = tmp_path_factory.mktemp("own") / "d"
    with private_libvirt.private_libvirtd(folder) as uri:
        libvirt = Libvirt(uri)
        private_libvirt.start_guest(uri, private_libvirt.guest_xml(f"own-{os.getpid()}"), paused=True)
        yield folder, libvirt, libvirt.guests(ROOT)[0]


def libvirtd_of(folder: Path) -> int:
    return int((folder / "libvirtd.pid").read_text())


@contextmanager
def restarted(folder: Path, guest: Guest) -> Iterator[None]:
    """The libvirtd started again, as systemd does it, where its guests are."""
    daemon = ["libvirtd", "-f", f"{folder}/etc/libvirtd.conf", "-p", f"{folder}/libvirtd.pid"]
    command = ["nsenter", "-t", str(guest.pid), "-m", "env", f"PATH={os.environ['PATH']}:/usr/sbin:/sbin", *daemon]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True) as running:
        try:
            yield
        finally:
            running.terminate()


@pytest.mark.fault(19)
def test_libvirtd_is_killed_in_the_middle_of_a_call_and_comes_back(own, journal):
    """The call hangs in a stopped libvirtd when that is killed: its outcome is unknown. It is made again, and read back
    from the kernel."""
    folder, libvirt, guest = own
    host = LiveHost(libvirt)
    before = masks(guest.pid)
    plan = plan_of(host, whole(host, guest))
    libvirt.persistent(guest.uuid)
    os.kill(libvirtd_of(folder), signal.SIGSTOP)
    killing = threading.Timer(0.5, os.kill, (libvirtd_of(folder), signal.SIGKILL))
    killing.start()
    applying = ThreadPoolExecutor(1).submit(apply, plan, host, journal)
    killing.join()
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
def test_libvirtd_does_not_come_back(own, journal):
    """What was done to guests cannot be taken back without libvirt, and is named; processes can, and are. When it is
    back the rest is."""
    folder, libvirt, guest = own
    host = LiveHost(libvirt)

    def progress(entry: Entry, total: int) -> None:
        if entry.state == "done" and entry.seq == 2:
            os.kill(libvirtd_of(folder), signal.SIGKILL)

    with process(THREADS.format(count=2)) as pid:
        before = masks(pid) | masks(guest.pid)
        targets = (daemon(pid), emulator(guest), vcpu(guest))
        wanted = [change(host, target, FIRST) for target in targets]
        run = executor.apply(plan_of(host, wanted), make_run(), host, journal, lambda: NOON, progress)
        assert run.state == "failed"
        assert "libvirt does not answer" in run.error
        assert [entry.state for entry in journal.entries("run-1")] == ["undone", "stuck", "failed"]
        assert masks(pid) == only(before, masks(pid))
        with restarted(folder, guest):
            time.sleep(1)
            assert rollback(host, journal).state == "rolled_back"
        now = masks(pid) | masks(guest.pid)
        assert now == only(before, now)
