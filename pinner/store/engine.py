"""A database and the two ways to use it: reading, and writing in one transaction that is on the disk afterwards."""

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
"""How long a transaction waits for another process's before it gives up."""

_WAL = "PRAGMA journal_mode = WAL"


def connect(url: str | URL) -> Engine:
    """The engine of an SQLAlchemy URL. Of SQLite, the file and its folder are made where they are missing, for this
    user alone, since a snapshot tells every command line of the host.

    Raises Invalid for a URL that is none, StoreUnavailable where the file cannot be made.
    """
    engine = load_driver(url)
    made = engine.url
    if made.get_backend_name() == "sqlite":
        if not made.database or made.database == ":memory:":
            raise Invalid("connection", str(url), "sqlite:///PATH: a database in memory is lost with its connection")
        _make_file(Path(made.database))
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    return engine


def load_driver(url: str | URL) -> Engine:
    """An engine of an SQLAlchemy URL, whose driver is imported and that has not opened anything. Raises Invalid for a
    URL that is none."""
    try:
        return create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        # What stands before the @ may be a password.
        shown = str(url).rpartition("@")[2]
        raise Invalid("connection", shown, f"an SQLAlchemy URL of an installed database driver ({error})") from None


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection that sees one moment of the database. Raises StoreUnavailable."""
    with _translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other writer interleaves with; committed durably at the end, rolled back on an exception.

    Raises StoreUnavailable.
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
    """Make an empty database of mode 0600 where there is none.

    A database that is in use must never be opened and closed beside SQLite: that lets go of every POSIX lock the
    process has on it (https://www.sqlite.org/howtocorrupt.html, 2.2). So it is made under another name and linked.
    """
    try:
        if path.exists():
            return
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(number)
        with closing(sqlite3.connect(name)) as made:
            # Here, where nobody else is: of two who switch it at once, SQLite lets one fail without a wait.
            made.execute(_WAL)
        with suppress(FileExistsError):
            os.link(name, path)
        Path(name).unlink()
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(str(path), getattr(error, "strerror", None) or str(error)) from None


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    """https://www.sqlite.org/pragma.html; transactions are begun by _begin, not by Python's sqlite3 at a guess."""
    connection.isolation_level = None
    busy = f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}"
    for pragma in (busy, _WAL, "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON"):
        connection.execute(pragma).close()


def _begin(connection: Connection) -> None:
    # A deferred transaction that turns to writing later fails at once when another wrote meanwhile; this one waits.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
