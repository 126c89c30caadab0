"""The engine: SQLite's settings, its file, and the errors of a database that cannot be used."""

import os
import sqlite3
import stat
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store.database import schema
from pinner.store.database.engine import connect, engine_of, reading, writing


def pragma(connection, name):
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_sqlite_is_set_up_for_durability(durable, sqlite):
    with reading(sqlite) as connection:
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2
        assert pragma(connection, "foreign_keys") == 1
        assert pragma(connection, "busy_timeout") >= 5000


def test_only_the_owner_may_read_the_file_and_its_folder(tmp_path):
    connect(f"sqlite:///{tmp_path}/deep/er/db.sqlite").dispose()
    assert stat.S_IMODE((tmp_path / "deep/er").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep/er/db.sqlite").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rubbish", "rubbish"),
        ("sqlite://", "sqlite://"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("nosuchdb://bob:secret@host/db", "host/db"),
        ("nosuchdb://host/db?user=bob&password=secret", "nosuchdb://..."),
        ("postgresql://bob:secret/db", "postgresql://..."),
        ("postgresql://bob:my@secret@host/db", "host/db"),
        ("nosuchdb://bob:a?secret@host/db", "nosuchdb://..."),
        ("postgresql://bob:secret@host:port/db", "host:port/db"),
        ("sqlite://bob:secret@host/db", "host/db"),
        ("mariadb://bob:secret@host/db?read_timeout=secret", "host/db"),
    ],
)
def test_the_error_of_a_wrong_url_contains_no_password(url, shown):
    with pytest.raises(Invalid) as caught:
        connect(url)
    assert caught.value.details["value"] == shown
    assert str(caught.value).startswith("[database] connection: ")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parameter", ["nonsense=secret", "ssl=secret"])
def test_parameters_of_a_url_that_the_driver_does_not_take(parameter):
    engine = engine_of(f"mariadb://bob:secret@127.0.0.1:1/db?{parameter}")
    with pytest.raises(Invalid) as caught, reading(engine):
        pass
    assert str(caught.value).startswith("[database] connection: '127.0.0.1' is not valid: ")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_a_database(tmp_path):
    (tmp_path / "db").write_text("these are not the bytes of a database" * 100)
    engine = connect(f"sqlite:///{tmp_path}/db")
    with pytest.raises(StoreUnavailable, match="not a database"), reading(engine):
        pass


def test_a_folder_instead_of_a_file(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}")
    with pytest.raises(StoreUnavailable, match="unable to open"), reading(engine):
        pass


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        connect(f"sqlite:///{tmp_path}/file/deeper/db")


def test_a_lock_that_is_not_released_raises_store_unavailable(sqlite, monkeypatch):
    monkeypatch.setattr("pinner.store.database.engine.BUSY_SECONDS", 0.05)
    sqlite.dispose()
    other = sqlite3.connect(sqlite.url.database)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailable, match="locked"), writing(sqlite):
            pass
        with reading(sqlite) as connection:
            assert connection.execute(text("SELECT count(*) FROM runs")).scalar() == 0
    finally:
        other.close()


def test_an_exception_rolls_back(sqlite):
    with pytest.raises(ZeroDivisionError), writing(sqlite) as connection:
        connection.execute(text("CREATE TABLE t (a)"))
        raise ZeroDivisionError
    with pytest.raises(StoreUnavailable, match="no such table"), reading(sqlite) as connection:
        connection.execute(text("SELECT * FROM t"))


@pytest.mark.needs("root")
def test_a_file_of_another_user():
    """The file is outside tmp_path, because other users may not enter its folders."""
    with tempfile.TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{folder}/db")
        schema.ensure(engine)
        engine.dispose()
        Path(folder).chmod(0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(StoreUnavailable, match="unable to open"), reading(engine):
                pass
            with pytest.raises(StoreUnavailable, match="Permission denied"):
                connect(f"sqlite:///{folder}/other")
        finally:
            os.seteuid(0)
