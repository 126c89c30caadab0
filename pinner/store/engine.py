"""A database, and the two ways to use it: a read transaction, and a durable write transaction."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from pinner.model.errors import Invalid, StoreUnavailable

BUSY_SECONDS = 10
"""How long a write transaction waits for another one before it fails."""

_WAL = "PRAGMA journal_mode = WAL"


def connect(url: str | URL) -> Engine:
    """The engine of an SQLAlchemy URL.

    For SQLite, a missing file and its folder are created. Only this user may read the file, because a snapshot contains
    every command line of the host. Raises Invalid for a wrong URL, StoreUnavailable if the file cannot be created.
    """
    engine = load_driver(url)
    parsed = engine.url
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise Invalid(
                "connection", str(url), "sqlite:///PATH: a database in memory is lost when its connection closes"
            )
        _make_file(Path(parsed.database))
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    return engine


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL; None for another database. Raises Invalid for a wrong URL."""
    parsed = load_driver(url).url
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def load_driver(url: str | URL) -> Engine:
    """An engine of an SQLAlchemy URL. The driver is imported, but no connection is opened. Raises Invalid for a wrong
    URL."""
    try:
        return create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        # The text before the @ may contain a password.
        shown = str(url).rpartition("@")[2]
        raise Invalid("connection", shown, f"an SQLAlchemy URL of an installed database driver ({error})") from None


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection in a read transaction: it sees one consistent state of the database. Raises StoreUnavailable."""
    with _translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A connection in a write transaction, the only one at a time on SQLite.

    It is committed durably at the end and rolled back on an exception. Raises StoreUnavailable.
    """
    with _translated(engine), engine.execution_options(writes=True).begin() as connection:
        yield connection


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except (DBAPIError, PoolTimeout) as error:
        why = getattr(error, "orig", None) or error
        raise StoreUnavailable(engine.url.set(query={}).render_as_string(), str(why)) from error
    except UnicodeEncodeError as error:
        raise Invalid("text", ascii(error.object), "text that can be written in UTF-8") from None


def _make_file(path: Path) -> None:
    """Create an empty database of mode 0600 if the file does not exist.

    A process must never open and close a database file without SQLite: this releases all POSIX locks that the process
    has on the file (https://www.sqlite.org/howtocorrupt.html, 2.2). So a file with another name is created and linked.
    """
    try:
        if path.exists():
            return
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(number)
        with closing(sqlite3.connect(name)) as connection:
            # No other process knows the file yet. If two processes switch the journal mode at the same time, SQLite
            # lets one of them fail without waiting.
            connection.execute(_WAL)
        with suppress(FileExistsError):
            os.link(name, path)
        Path(name).unlink()
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(str(path), getattr(error, "strerror", None) or str(error)) from None


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    """Set the pragmas (https://www.sqlite.org/pragma.html). _begin starts transactions, not Python's sqlite3."""
    connection.isolation_level = None
    busy = f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}"
    for pragma in (busy, _WAL, "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON"):
        connection.execute(pragma).close()


def _begin(connection: Connection) -> None:
    # A deferred transaction that starts to write later fails at once if another one wrote meanwhile; IMMEDIATE waits.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
