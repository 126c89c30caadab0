"""A disk that fills up while an apply is under way, the journal's or the central database's; and a read-only one."""

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
from support.kernel import THREADS, masks, process
from support.real_guests import FIRST, ONLINE, apply, change, daemon, plan_of
from support.values import NOON, make_snapshot

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.apply.recover import recover
from pinner.host.libvirt import Libvirt
from pinner.host.live import LiveHost
from pinner.model.audit import Caller
from pinner.model.change import ThreadMask
from pinner.model.errors import StoreUnavailable
from pinner.model.plan import Plan
from pinner.service.compose import ServiceParts, compose
from pinner.store.journal import Journal
from pinner.store.repositories import open_store

pytestmark = [
    pytest.mark.skipif(len(ONLINE) < 2, reason="needs two CPUs"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount"),
]
ANN = Caller("ann", "cli", "req-1")


class SlowHost(LiveHost):
    """This machine; its first write waits for ``go``."""

    def __init__(self) -> None:
        super().__init__(Libvirt("qemu:///system"))
        self.waits = threading.Event()
        self.go = threading.Event()

    def set_mask(self, thread: ThreadMask) -> None:
        self.waits.set()
        assert self.go.wait(20)
        super().set_mask(thread)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> None:
    """To the last byte."""
    with (folder / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(bytes(1024))


@pytest.fixture
def pids() -> Iterator[tuple[int, int]]:
    with process(THREADS.format(count=3)) as first, process(THREADS.format(count=2)) as second:
        os.sched_setaffinity(max(masks(first)), ONLINE[1:2])
        yield first, second


def the_plan(host: LiveHost, pids: tuple[int, ...]) -> Plan:
    return plan_of(host, [change(host, daemon(pid), FIRST) for pid in pids])


def all_masks(pids: tuple[int, ...]) -> dict[int, str]:
    return {tid: mask for pid in pids for tid, mask in masks(pid).items()}


@pytest.mark.fault(33)
def test_the_journals_disk_is_full_before_the_apply(tmp_path, pids):
    before = all_masks(pids)
    host = LiveHost(Libvirt("qemu:///system"))
    with small_disk(tmp_path / "disk") as disk, closing(Journal(disk)) as journal:
        fill(disk)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            apply(the_plan(host, pids), host, journal)
        assert all_masks(pids) == before
        (disk / "filler").unlink()
        assert apply(the_plan(host, pids), host, journal).state == "applied"


@pytest.mark.fault(33)
def test_the_journals_disk_is_full_in_the_middle(tmp_path, pids):
    """The changes are taken back at once. The run's end is written when there is a place for it."""
    before = all_masks(pids)
    host = SlowHost()
    with small_disk(tmp_path / "disk") as disk, closing(Journal(disk)) as journal, ThreadPoolExecutor(1) as worker:
        applying = worker.submit(apply, the_plan(host, pids), host, journal)
        assert host.waits.wait(10)
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
    """Every write to the database fails, also by who has it open."""
    with immutable(folder / "pinner.sqlite", folder / "pinner.sqlite-wal"):
        yield


@contextmanager
def immutable(*files: Path) -> Iterator[None]:
    subprocess.run(["chattr", "+i", *files], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *files], check=True)


def heeded(folder: Path) -> bool:
    """Whether what is immutable cannot be written by who has it open: ext4 heeds it, tmpfs does not."""
    with (folder / "probe").open("wb", buffering=0) as file:
        try:
            with immutable(folder / "probe"):
                file.write(b"x")
        except (OSError, subprocess.CalledProcessError) as error:
            return isinstance(error, PermissionError)
    return False


@pytest.fixture(params=[full, read_only])
def lost(request: pytest.FixtureRequest) -> Callable[[Path], AbstractContextManager[None]]:
    return request.param


@pytest.fixture
def central(tmp_path: Path, lost: object) -> Iterator[Path]:
    """The folder of the central database."""
    if lost is full:
        with small_disk(tmp_path / "central") as disk:
            yield disk
    elif heeded(tmp_path):
        yield tmp_path
    else:
        pytest.skip("files that are open cannot be made immutable here")


@pytest.mark.fault(33)
def test_the_central_database_cannot_be_written_in_the_middle(tmp_path, central, pids, lost):
    """The agent needs it no more once it has begun: it ends as planned, and the centre learns of it later."""
    host, clock = SlowHost(), [datetime.now(UTC)]
    with (
        open_store(f"sqlite:///{central}/pinner.sqlite") as store,
        closing(Journal(tmp_path / "agent")) as journal,
    ):
        agent = LocalAgent(
            lambda _: make_snapshot(),
            host,
            journal,
            lambda: datetime.now(UTC),
            HostEventQueue(lambda: datetime.now(UTC)),
        )
        basis = store.snapshots.add(make_snapshot())
        plan = the_plan(host, pids)
        plan = replace(plan, basis=replace(plan.basis, snapshot=basis))
        store.plans.add(plan, NOON)

        def serve() -> ServiceParts:
            return compose({"h1": agent}, store, lambda: clock[0], lambda: uuid.uuid4().hex[:12], 0.0)

        with closing(serve()) as parts:
            run = parts.service.apply(plan.id, False, ANN)
            assert host.waits.wait(10)
            with lost(central):
                host.go.set()
                parts.close()
                assert set(all_masks(pids).values()) == {str(FIRST)}
                assert journal.run(run.id).state == "applied"
                assert store.runs.get(run.id).state == "running"
        clock[0] = datetime.max.replace(tzinfo=UTC)
        with closing(serve()) as again:
            again.runs.catch_up()
            assert again.service.run(run.id).state == "applied"
            assert [entry.state for entry in again.service.entries(run.id)] == ["done", "done"]
            assert again.service.verify_audit().ok
