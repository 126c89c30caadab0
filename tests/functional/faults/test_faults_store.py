"""The disk of the journal or of the central database becomes full or read-only during an apply."""

import os
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support import needs
from support.guests.real_guests import FIRST, ONLINE, apply, change, daemon, plan_of
from support.system.kernel import THREADS, masks, process
from support.system.own_snapshot import snapshot_of
from support.values import NOON, make_snapshot

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.apply.recover import recover
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import StoreUnavailable
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts
from pinner.store.journal.journal import StoredJournal
from pinner.store.repositories import open_store

pytestmark = pytest.mark.needs("root", "two_cpus")
ANN = Caller("ann", "cli", "req-1")


class SlowHost(LiveHost):
    """This machine; its first write of a mask sets ``waits`` and then waits for ``go``."""

    def __init__(self) -> None:
        super().__init__(Libvirt("qemu:///system"))
        self.waits = threading.Event()
        self.go = threading.Event()

    def set_mask(self, thread: ThreadMask, *read: CpuSet) -> bool:
        self.waits.set()
        assert self.go.wait(60)
        return super().set_mask(thread, *read)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    needs.require("mounts")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> None:
    """Fill the file system to the last byte."""
    with (folder / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(1024))


@pytest.fixture
def pids() -> Iterator[tuple[int, int]]:
    with process(THREADS.format(count=3)) as first, process(THREADS.format(count=2)) as second:
        os.sched_setaffinity(max(masks(first)), ONLINE[1:2])
        yield first, second


def plan_for(host: LiveHost, pids: tuple[int, ...]) -> Plan:
    plan = plan_of(host, [change(host, daemon(pid), FIRST) for pid in pids])
    # Named in the request, because the owner of some of their threads restricted these.
    return replace(plan, request=Request(processes=tuple(map(str, pids))))


def all_masks(pids: tuple[int, ...]) -> dict[int, str]:
    return {tid: mask for pid in pids for tid, mask in masks(pid).items()}


@pytest.mark.fault(33)
def test_an_apply_is_refused_while_the_disk_of_the_journal_is_full(tmp_path, pids):
    before = all_masks(pids)
    host = LiveHost(Libvirt("qemu:///system"))
    with small_disk(tmp_path / "disk") as disk, closing(StoredJournal(disk)) as journal:
        fill(disk)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            apply(plan_for(host, pids), host, journal)
        assert all_masks(pids) == before
        (disk / "filler").unlink()
        assert apply(plan_for(host, pids), host, journal).state == "applied"


@pytest.mark.fault(33)
def test_changes_are_undone_when_the_disk_of_the_journal_becomes_full(tmp_path, pids):
    """The changes are undone at once; the end of the run is written once the disk has free space."""
    before = all_masks(pids)
    host = SlowHost()
    with (
        small_disk(tmp_path / "disk") as disk,
        closing(StoredJournal(disk)) as journal,
        ThreadPoolExecutor(1) as worker,
    ):
        applying = worker.submit(apply, plan_for(host, pids), host, journal)
        assert host.waits.wait(60)
        fill(disk)
        host.go.set()
        with pytest.raises(StoreUnavailable, match="disk is full"):
            applying.result(20)
        assert all_masks(pids) == before
        with pytest.raises(StoreUnavailable, match="disk is full"):
            recover(host, journal, "back", lambda: NOON)
        (disk / "filler").unlink()
        run = recover(host, journal, "back", lambda: NOON)
        assert (run.state, run.recovered) == ("undone", "interrupted; rolled back: 2 undone")
        assert all_masks(pids) == before


@contextmanager
def full(folder: Path) -> Iterator[None]:
    fill(folder)
    yield
    (folder / "filler").unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Every write to the database fails, also through a file that is already open."""
    with immutable(folder / "pinner.sqlite", folder / "pinner.sqlite-wal"):
        yield


@contextmanager
def immutable(*files: Path) -> Iterator[None]:
    subprocess.run(["chattr", "+i", *files], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], check=True)


def immutable_works(folder: Path) -> bool:
    """Whether an open file can be made immutable here: that works on ext4, but not on tmpfs."""
    with (folder / "probe").open("wb", buffering=0) as file:
        try:
            with immutable(folder / "probe"):
                file.write(b"x")
        except (OSError, subprocess.CalledProcessError) as error:
            return isinstance(error, PermissionError)
    return False


@pytest.fixture(params=[full, read_only])
def make_unwritable(request: pytest.FixtureRequest) -> Callable[[Path], AbstractContextManager[None]]:
    return request.param


@pytest.fixture
def central_folder(tmp_path: Path, make_unwritable: object) -> Iterator[Path]:
    """The folder of the central database."""
    if make_unwritable is full:
        with small_disk(tmp_path / "central") as disk:
            yield disk
        return
    needs.require("immutable_files")
    if immutable_works(tmp_path):
        yield tmp_path
    else:
        pytest.skip("open files cannot be made immutable here")


@pytest.mark.fault(33)
def test_an_apply_completes_while_the_central_database_cannot_be_written(
    tmp_path, central_folder, pids, make_unwritable
):
    """An apply that has begun does not need the central database: it completes, and the database is updated later."""
    host, clock = SlowHost(), [datetime.now(UTC)]
    with (
        open_store(f"sqlite:///{central_folder}/pinner.sqlite") as store,
        closing(StoredJournal(tmp_path / "agent")) as journal,
    ):
        agent = LocalAgent(
            lambda _: snapshot_of(pids),
            host,
            journal,
            lambda: datetime.now(UTC),
            HostEventQueue(lambda: datetime.now(UTC)),
            AgentTrailFile(
                "h1", journal.chain, SigningKey(tmp_path / "agent" / "signing.key"), lambda: datetime.now(UTC)
            ),
            name="h1",
        )
        basis = store.snapshots.add(make_snapshot())
        plan = plan_for(host, pids)
        plan = replace(plan, basis=replace(plan.basis, snapshot=basis))
        store.plans.add(plan, NOON)

        def start_service() -> ServiceParts:
            return ServiceParts({"h1": agent}, store, lambda: clock[0], lambda: uuid.uuid4().hex[:12], 0.0)

        with closing(start_service()) as parts:
            run = parts.service.apply(plan.id, ApplyOptions(), ANN)
            assert host.waits.wait(60)
            with make_unwritable(central_folder):
                host.go.set()
                parts.close()
                assert set(all_masks(pids).values()) == {str(FIRST)}
                assert journal.run(run.id).state == "applied"
                assert store.runs.get(run.id).state == "running"
        clock[0] = datetime.max.replace(tzinfo=UTC)
        with closing(start_service()) as restarted:
            restarted.runs.catch_up()
            assert restarted.service.run(run.id).state == "applied"
            assert [entry.state for entry in restarted.service.entries(run.id)] == ["done", "done"]
            assert restarted.service.verify_audit().ok
