"""A database, and the two ways to use it: a read transaction, and a durable write transaction.

SQLite, PostgreSQL and MariaDB have one writer at a time. SQLite does that itself (BEGIN IMMEDIATE). On the other two, a
write transaction first locks the row of ``audit_chain``. So a row that a transaction did not find cannot appear before
its insert, no two transactions wait for each other, and the order of ``seq`` is the order of the commits.
"""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from pinner import whole_file
from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store.database import tables
from pinner.store.database.damage import repair, set_aside
from pinner.store.database.driver import BUSY_SECONDS, FIELD, load_driver
from pinner.store.database.preparation import prepare

MARIADB = ("mariadb", "mysql")
"""SQLAlchemy's names of MariaDB."""

_WAL = "PRAGMA journal_mode = WAL"
SYNCHRONOUS = "FULL"
"""A transaction that has ended is on the disk."""


def connect(url: str | URL) -> Engine:
    """The engine of an SQLAlchemy URL.

    For SQLite, a missing file and its folder are created. Only this user may read the file, because a snapshot contains
    every command line of the host. Raises Invalid for a wrong URL, StoreUnavailable if the file cannot be created.
    """
    engine = engine_of(url)
    make_file(engine)
    return engine


def engine_of(url: str | URL) -> Engine:
    """The engine of an SQLAlchemy URL; no file is created. Raises Invalid for a wrong URL."""
    engine = load_driver(url)
    parsed = engine.url
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise Invalid(FIELD, str(url), "sqlite:///PATH: a database in memory is lost when its connection closes")
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    event.listen(engine, "before_cursor_execute", _refuse_nul)
    return engine


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL; None for another database. Raises Invalid for a wrong URL."""
    parsed = load_driver(url).url
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def make_file(engine: Engine) -> None:
    """Create the file of an SQLite database if it is missing. Raises StoreUnavailable."""
    if engine.dialect.name == "sqlite":
        _make_file(Path(str(engine.url.database)))


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection in a read transaction: it sees one consistent state of the database. Raises StoreUnavailable."""
    prepare(engine)
    if engine.dialect.name == "postgresql":  # the default of the other two
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A connection in a write transaction, the only one at a time.

    It is committed durably at the end and rolled back on an exception. Raises StoreUnavailable.
    """
    prepare(engine)
    with translated(engine), engine.execution_options(writes=True).begin() as connection:
        if engine.dialect.name != "sqlite":
            connection.execute(select(tables.audit_chain.c.id).with_for_update()).all()
        yield connection


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn the errors of a database into StoreUnavailable and Invalid."""
    try:
        yield
    except IntegrityError:
        raise
    except DataError as error:
        raise Invalid("text", str(error.orig), "a text that the database can store") from None
    except (DBAPIError, PoolTimeout) as error:
        # Servers answer in several lines.
        why = " ".join(str(getattr(error, "orig", None) or error).split())
        raise StoreUnavailable(where(engine), why + repair(engine, error)) from error
    except UnicodeEncodeError as error:
        raise Invalid("text", ascii(error.object), "text that can be written in UTF-8") from None
    except (ValueError, zlib.error) as error:
        why = f"a stored value is damaged: {' '.join(str(error).split())[:200]}"
        raise StoreUnavailable(where(engine), why + repair(engine, None)) from error


def where(engine: Engine) -> str:
    """The database for a message: the path of an SQLite file, or the URL without its password."""
    if engine.dialect.name == "sqlite":
        return str(engine.url.database)
    return engine.url.set(query={}).render_as_string()


def _make_file(path: Path) -> None:
    """Create an empty database of mode 0600 if the file does not exist.

    A process must never open and close a database file without SQLite: this releases all POSIX locks that the process
    has on the file (https://www.sqlite.org/howtocorrupt.html, 2.2). So a file with another name is created and linked.
    """
    try:
        if path.exists():
            if path.is_file() and path.stat().st_size == 0:
                # pinner never leaves an empty file.
                raise StoreUnavailable(str(path), f"the file is empty, its content is lost{set_aside(path)}")
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file.draft(path.parent) as new:
            with closing(sqlite3.connect(new)) as connection:
                # No other process knows the file yet. If two processes switch the journal mode at the same time, SQLite
                # lets one of them fail without waiting.
                connection.execute(_WAL)
            whole_file.publish(new, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(str(path), getattr(error, "strerror", None) or str(error)) from None


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    """Set the pragmas (https://www.sqlite.org/pragma.html). _begin starts transactions, not Python's sqlite3."""
    connection.isolation_level = None
    busy = f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}"
    for pragma in (busy, _WAL, f"PRAGMA synchronous = {SYNCHRONOUS}", "PRAGMA foreign_keys = ON"):
        connection.execute(pragma).close()


def _begin(connection: Connection) -> None:
    # A deferred transaction that starts to write later fails at once if another one wrote meanwhile; IMMEDIATE waits.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _refuse_nul(_connection: object, _cursor: object, _statement: str, values: Any, *_: object) -> None:
    """Refuse a text that contains NUL on every database, because PostgreSQL cannot store it."""
    for row in values if isinstance(values, list) else [values]:
        for value in row.values() if isinstance(row, dict) else row:
            if isinstance(value, str) and "\0" in value:
                raise Invalid("text", ascii(value[:80])[1:-1], "text without the character NUL")
