"""Another process holds the lock of the central database while runs are under way."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from support.server.real_service import real_service
from support.values import NOON, make_change, make_run

from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Entry
from pinner.service.runs.run_recorder import READ_SECONDS
from pinner.store.database import engine

BUSY_SECONDS = 2
READERS = 6


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """No other connection can write."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def test_runs_are_listed_while_their_progress_cannot_be_stored(tmp_path, monkeypatch):
    """Readers neither wait for each other's attempt to write, nor fail because of it."""
    monkeypatch.setattr(engine, "BUSY_SECONDS", BUSY_SECONDS)
    with real_service(tmp_path) as (service, agent):
        agent.host.gate = threading.Semaphore(0)
        caller = Caller("ann", "cli", "req-1")
        plan = service.plan("compute1", Request(busy_threshold=50.0), None, 0.0, caller)
        starting = threading.Thread(target=lambda: service.apply(plan.id, ApplyOptions(), caller))
        starting.start()
        try:
            while not service.runs(None, PageRequest()).items:
                time.sleep(0.01)
            recorders = service._runs._copier._recorders
            ((run, recorder),) = recorders.items()
            with locked(tmp_path / "pinner.sqlite"), ThreadPoolExecutor(READERS) as readers:
                recorder.note(Entry(run, 99, make_change(100), "intent", NOON))
                began = time.monotonic()
                pages = list(readers.map(lambda _: service.runs(None, PageRequest()), range(READERS)))
                took = time.monotonic() - began
        finally:
            agent.host.gate.release(1000)
            starting.join()
    assert [page.items[0].state for page in pages] == ["running"] * READERS
    assert took < 2 * BUSY_SECONDS + READ_SECONDS


def test_runs_whose_process_died_are_shown_while_their_end_cannot_be_stored(tmp_path, monkeypatch):
    """They are shown as they are stored; the end is stored as soon as the database can be written."""
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0)
    with real_service(tmp_path) as (service, agent):
        plan = service.plan("compute1", Request(busy_threshold=50.0), None, 0.0, Caller("ann", "cli", "req-1"))
        run = make_run("run-dead", "compute1", plan=plan.id)
        service._store.runs.add(run)
        agent.apply(plan, run, lambda *_: None)
        with locked(tmp_path / "pinner.sqlite"):
            service._runs.catch_up()
            assert [each.state for each in service.runs("compute1", PageRequest()).items] == ["running"]
            assert service.run("run-dead").state == "running"
            assert service.entries("run-dead") == ()
        assert service.run("run-dead").state == "applied"
        assert service.entries("run-dead") == agent.entries("run-dead")
