"""Several writers, long texts, and a database server that restarts, on every database."""

import multiprocessing
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import text
from support.store.appender import append_pairs
from support.values import NOON, make_entries, make_run, make_snapshot

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.model.event import GuestHint
from pinner.model.page import PageRequest
from pinner.model.run.audit import AuditAction, AuditEvent
from pinner.store.audit.audit import Audit, append_events
from pinner.store.database import engine as engine_module
from pinner.store.database.engine import connect, reading, write
from pinner.store.guest_hints import GuestHints
from pinner.store.plans import Snapshots
from pinner.store.repositories import open_store
from pinner.store.runs.runs import Runs

WRITERS, TIMES = 8, 13
MIB = "x" * 2**20


def event(subject="process busy"):
    return AuditEvent(NOON, "ann", "cli", AuditAction.RUN_CHANGE, "h1", subject, "0-3", "0", "done", "req-1")


@pytest.mark.fault(60)
def test_eight_writers_lose_no_audit_record(engine):
    url = engine.url.render_as_string(hide_password=False)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=append_pairs, args=(url, f"process {n}", TIMES)) for n in range(2)]
    workers += [threading.Thread(target=append_pairs, args=(url, f"thread {n}", TIMES)) for n in range(WRITERS - 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    verdict = Audit(engine).verify()
    assert (verdict.ok, verdict.why, verdict.records) == (True, "", WRITERS * TIMES * 2)


@pytest.mark.fault(60)
def test_slow_readers_leave_a_connection_for_a_writer(engine):
    """Every request of a server streams the trail to a slow client, and the server's own work goes on."""
    with ExitStack() as readers:
        for _ in range(24):
            readers.enter_context(reading(engine))
        Audit(engine).append(event())
    assert Audit(engine).verify().records == 1


@pytest.mark.fault(60)
def test_writers_of_the_same_row_at_the_same_time(engine):
    """A row that one writer did not find must not appear before its insert."""
    errors, ready = [], threading.Barrier(WRITERS)
    snapshot = make_snapshot()

    def put(n):
        ready.wait()
        try:
            for round_ in range(5):
                Snapshots(engine).add(snapshot, [event()])
                hint = GuestHint(f"guest-{round_}", "h1", NOON + timedelta(seconds=n))
                GuestHints(engine).change(hint.guest, "h1", lambda _, hint=hint: (hint, ""), lambda _: event())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(GuestHints(engine).of("h1")) == 5
    assert Audit(engine).verify().records == WRITERS * 10


@pytest.mark.fault(60)
def test_a_text_of_one_mib(engine):
    run, (entry,) = make_run(actor=MIB), make_entries(count=1)
    stored = replace(entry, error=MIB, definition=MIB)
    Runs(engine).add(run, [stored], [event(MIB)])
    assert (Runs(engine).get(run.id), Runs(engine).entries(run.id)) == (run, (stored,))
    (record,) = Audit(engine).list(None, None, None, PageRequest(1)).items
    assert record.subject == MIB
    assert Audit(engine).verify().ok


def test_ids_are_compared_by_their_bytes(engine):
    ids = ("run-a", "RUN-A", "run-\u00e4", "run-a\u0308", "run-a ")
    for id_ in ids:
        Runs(engine).add(make_run(id_))
    assert [Runs(engine).get(id_).id for id_ in ids] == [*ids]


@pytest.mark.fault(60)
def test_nul_in_a_text_is_refused(engine):
    for call in (
        lambda: Runs(engine).get("run-\0"),
        lambda: Runs(engine).list("h\0", PageRequest()),
        lambda: Runs(engine).add(make_run(actor="a\0n")),
        lambda: Audit(engine).append(event("a\0")),
        lambda: Audit(engine).append(event(), event("a\0")),
    ):
        with pytest.raises(Invalid, match="text without the character NUL"):
            call()
    assert Audit(engine).verify().records == 0


def test_a_text_that_is_too_long_for_its_column(engine):
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no limit")
    with pytest.raises(Invalid, match="a text that the database can store"):
        Runs(engine).add(make_run("r" * 65))


@pytest.fixture(params=["postgresql", "mariadb"])
def restartable(request, databases):
    """A server and the engine of a database on it, with the newest schema."""
    server = databases.server(request.param)
    url = server.database()
    with open_store(url):
        pass
    engine = connect(url)
    yield server, engine
    engine.dispose()


@pytest.mark.fault(60)
def test_the_server_restarts_between_two_writes(restartable):
    server, engine = restartable
    Audit(engine).append(event())
    server.restart()
    Audit(engine).append(event())
    assert Audit(engine).verify().records == 2


@pytest.mark.fault(60)
def test_the_server_restarts_while_writers_write(restartable):
    """A writer that is told of a failure tries again only if its record is not stored."""
    server, engine = restartable
    written, failed, ready = [], [], threading.Event()

    def append(writer):
        for number in range(40):
            name = f"{writer} {number}"
            try:
                Audit(engine).append(event(name))
                written.append(name)
            except StoreUnavailable:
                failed.append(name)
            if number == 5:
                ready.set()

    threads = [threading.Thread(target=append, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    server.restart()
    for thread in threads:
        thread.join()
    verdict = Audit(engine).verify()
    assert verdict.ok, verdict.why
    with engine.connect() as connection:
        stored = list(connection.execute(text("SELECT subject FROM audit")).scalars())
    assert len(stored) == len({*stored}), "a record was doubled"
    assert {*written} <= {*stored}, "a record was lost"
    assert {*stored} <= {*written, *failed}


@pytest.mark.fault(60)
def test_a_server_that_does_not_answer(restartable, monkeypatch):
    monkeypatch.setattr(engine_module, "WAITS", (0.01,))
    server, engine = restartable
    Audit(engine).append(event())
    server.kill()
    try:
        with pytest.raises(StoreUnavailable):
            Audit(engine).append(event())
        with pytest.raises(StoreUnavailable):
            Audit(engine).verify()
    finally:
        server.start()
    assert Audit(engine).verify().records == 1


def test_a_commit_whose_answer_is_lost_is_not_repeated(restartable):
    """The connection is cut after the server has committed: the audit trail shows that the action is stored."""
    server, engine = restartable
    runs = []

    def cut(connection):
        connection.connection.commit()
        kind = connection.dialect.name
        sockets = connection.connection.dbapi_connection
        if kind == "postgresql":
            server.execute(f"SELECT pg_terminate_backend({sockets.info.backend_pid})")
            time.sleep(0.2)
        else:
            sockets._sock.close()

    def work(connection):
        runs.append(1)
        append_events(connection, [event(f"run {len(runs)}")])
        if len(runs) == 1:
            sqlalchemy_event.listen(connection, "commit", cut)

    write(engine, work)
    assert runs == [1]
    assert [record.subject for record in Audit(engine).list(None, None, None, PageRequest()).items] == ["run 1"]
