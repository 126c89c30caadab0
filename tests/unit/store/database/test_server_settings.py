"""Settings of a database server that its administrator has changed."""

import threading

import pytest
from sqlalchemy import make_url
from support.values import NOON, make_run

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.model.run.audit import AuditAction, AuditEvent
from pinner.store.database import engine as engine_module
from pinner.store.idempotency import Reservation, StoredAnswer
from pinner.store.repositories import open_store

pytestmark = pytest.mark.fault(60)
EVENT = AuditEvent(NOON, "ann", "cli", AuditAction.RUN_CHANGE, "h1", "\u65e5\U0001f600 ", "0-3", "0", "done", "req-1")
ANSWER = StoredAnswer("hash", 201, "/v1/plans/o'\\", bytes(range(256)) + b"\\'")
POSTGRESQL = {
    "default_transaction_isolation": "'serializable'",
    "client_encoding": "'latin1'",
    "standard_conforming_strings": "off",
    "bytea_output": "'escape'",
    "lock_timeout": "'1ms'",
}
MARIADB = {
    "tx_isolation": "SERIALIZABLE",
    "completion_type": "RELEASE",
    "sql_safe_updates": 1,
    "sql_select_limit": 1,
    "max_join_size": 1,
    "default_storage_engine": "MyISAM",
    "innodb_snapshot_isolation": 1,
    "autocommit": 0,
}


def stores_all(url, monkeypatch):
    """Eight writers store their records; none of them is told to try again."""
    monkeypatch.setattr(engine_module, "WAITS", ())
    errors = []

    def write(store, n):
        try:
            for each in range(4):
                run = make_run(f"run-{n}-{each}", actor="o'\\\"\U0001f600 ")
                store.runs.add(run, [], [EVENT])
                request = Reservation("ann", run.id, "hash", NOON)
                assert store.idempotency_keys.begin(request) is None
                store.idempotency_keys.end(request, ANSWER)
                assert (store.runs.get(run.id), store.idempotency_keys.begin(request)) == (run, ANSWER)
        except Exception as error:
            errors.append(error)

    with open_store(url) as store:
        threads = [threading.Thread(target=write, args=(store, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        verdict = store.audit.verify()
        assert (verdict.ok, verdict.records) == (True, 32)


def test_changed_settings_of_postgresql(databases, tmp_path, monkeypatch):
    url = databases.fresh("postgresql", tmp_path)
    name = url.partition("?")[0].rpartition("/")[2]
    for setting, value in POSTGRESQL.items():
        databases.server("postgresql").execute(f"ALTER DATABASE {name} SET {setting} = {value}")
    stores_all(url, monkeypatch)


@pytest.mark.parametrize("mode", ["", "ORACLE", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES"])
def test_changed_settings_of_mariadb(databases, monkeypatch, mode):
    server = databases.server("mariadb")
    url = server.database()
    with server.changed({**MARIADB, "sql_mode": mode}):
        stores_all(url, monkeypatch)
        with open_store(url) as store, pytest.raises(Invalid, match="a text that the database can store"):
            store.runs.add(make_run("r" * 65))
    server.drop(url)


def test_the_character_set_of_a_url_is_not_used(databases, tmp_path, monkeypatch):
    stores_all(f"{databases.fresh('mariadb', tmp_path)}?charset=latin1", monkeypatch)


def test_a_packet_that_is_too_small_is_named(databases):
    server = databases.server("mariadb")
    url = server.database()
    refused = pytest.raises(StoreUnavailable, match="max_allowed_packet of the server is 16384; pinner needs 4194304")
    with server.changed({"max_allowed_packet": 16384}), open_store(url) as store, refused:
        store.audit.append(EVENT)
    server.drop(url)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_encodings_of_postgresql(databases, monkeypatch, encoding):
    """pinner's texts are UTF-8."""
    server = databases.server("postgresql")
    name = f"pinner_{encoding.lower()}"
    server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    url = make_url(server.database()).set(database=name).render_as_string(hide_password=False)
    if encoding == "SQL_ASCII":
        stores_all(url, monkeypatch)
    else:
        with open_store(url) as store, pytest.raises(StoreUnavailable, match="its encoding is LATIN1; pinner needs"):
            store.audit.append(EVENT)
