"""A database, and its two uses: a read transaction, and a durable write transaction. There is one writer at a time: by
BEGIN IMMEDIATE on SQLite; on PostgreSQL and MariaDB, a write first locks the row of ``audit_chain``. So a row that was
not found cannot appear before its insert, no two transactions wait for each other, and ``seq`` has the order of the
commits."""

import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, insert, make_url, select, update
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from pinner import whole_file
from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store.database import tables
from pinner.store.database.damage import repair, set_aside

FIELD = "[database] connection"

BUSY_SECONDS = 10

CONNECT_SECONDS = 10

_POOL = {"pool_size": 5, "max_overflow": 27}
"""The threads of a server that use the database at once: 16 requests, 8 event streams, and its own work. A slow
client's answer keeps its connection."""

DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "mysql": "mariadb+pymysql"}

_EXPECTED = "an SQLAlchemy URL of an installed database driver"

_MARIADB = ", ".join(
    (
        # Without a strict mode, MariaDB cuts a text that is too long.
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
        f"innodb_lock_wait_timeout = {BUSY_SECONDS}",
        "default_storage_engine = InnoDB",
        "completion_type = 0",
        "sql_safe_updates = 0",
        # A limit would hide records from the verification of the audit trail.
        "sql_select_limit = 18446744073709551615",
        "sql_big_selects = 1",
        "foreign_key_checks = 1",
    )
)


def load_driver(url: str | URL) -> Engine:
    """Imports the driver without a connection. Raises Invalid."""
    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))
        # Without this check, the rest of the password would become a part of the host's name.
        if "@" in (parsed.host or ""):
            raise _invalid(url, "a URL whose password contains %40 in place of @, %2F of /, %3A of : and %25 of %")
        return _engine(parsed)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        # The message of a ValueError, the wrong number of a port, can be a part of a password.
        why = "" if isinstance(error, ValueError) else f" ({' '.join(str(error).split())})"
        raise _invalid(url, f"{_EXPECTED}{why}") from None


def shown(url: str | URL) -> str:
    """Without parameters and credentials, which may have a password."""
    text = str(url).partition("?")[0]
    if "@" in text:
        return text.rpartition("@")[2]
    scheme, mark, _ = text.partition("://")
    return f"{scheme}://..." if mark and not scheme.startswith("sqlite") else text


def _invalid(url: str | URL, expected: str) -> Invalid:
    return Invalid(FIELD, shown(url), expected)


def _engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    if backend == "sqlite":
        # A database in memory, which the caller refuses, has no pool of a size.
        return create_engine(url, **({} if url.database in (None, "", ":memory:") else _POOL))
    settings: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS}
    if backend == "postgresql":
        # A later writer must see what the writer before it has committed.
        isolation = "READ COMMITTED"
        settings |= {"client_encoding": "utf8"}
    else:
        # The first read after the lock sees it, and a binary log in statements refuses READ COMMITTED.
        isolation = "REPEATABLE READ"
        settings |= {"charset": "utf8mb4", "init_command": _MARIADB}
    # Each connection is tested before it is used, because the server may have been restarted since its last use.
    engine = create_engine(url, pool_pre_ping=True, isolation_level=isolation, connect_args=settings, **_POOL)
    event.listen(engine, "do_connect", _connect)
    if backend == "postgresql":
        event.listen(engine, "connect", _limit_locks)
    return engine


def _connect(dialect: Dialect, _record: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> DBAPIConnection:
    """Raises Invalid for parameters that the driver does not take; PyMySQL has no error of its own."""
    try:
        return dialect.connect(*positional, **named)
    except (TypeError, AttributeError, ValueError, LookupError):
        host = str(named.get("host", dialect.name))
        raise Invalid(FIELD, host, "a URL with parameters that the database driver takes") from None


def _limit_locks(connection: Any, _record: Any) -> None:
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET lock_timeout = '{BUSY_SECONDS}s'")
    connection.commit()


PREPARATION = "pinner_preparation"


class Preparation:
    """Work that must succeed once before an engine is used; each use tries it until then."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._guard = threading.RLock()
        self._done = False
        self._under_way = False

    def __call__(self) -> None:
        """The work may use the engine itself."""
        if self._done:
            return
        with self._guard:
            if self._done or self._under_way:
                return
            self._under_way = True
            try:
                self._work()
                self._done = True
            finally:
                self._under_way = False


def prepare(engine: Engine) -> None:
    preparation = engine.get_execution_options().get(PREPARATION)
    if preparation is not None:
        preparation()


MARIADB = ("mariadb", "mysql")

_WAL = "PRAGMA journal_mode = WAL"
SYNCHRONOUS = "FULL"
"""A transaction that has ended is on the disk."""


def connect(url: str | URL) -> Engine:
    """Creates a missing SQLite file and folder, private: it has command lines. Raises Invalid, StoreUnavailable."""
    engine = engine_of(url)
    make_file(engine)
    return engine


def engine_of(url: str | URL) -> Engine:
    """Does not create the file. Raises Invalid."""
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
    """None for another database. Raises Invalid."""
    parsed = load_driver(url).url
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def make_file(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        _make_file(Path(str(engine.url.database)))


class Repository:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A read transaction, which sees one consistent state. Raises StoreUnavailable."""
    prepare(engine)
    if engine.dialect.name == "postgresql":  # the default of the other two
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """The only write transaction at this time, durably committed at the end. Raises StoreUnavailable."""
    prepare(engine)
    with translated(engine), engine.execution_options(writes=True).begin() as connection:
        if engine.dialect.name != "sqlite":
            connection.execute(select(tables.audit_chain.c.id).with_for_update()).all()
        yield connection


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
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
    """Without the URL's password."""
    if engine.dialect.name == "sqlite":
        return str(engine.url.database)
    return engine.url.set(query={}).render_as_string()


def _make_file(path: Path) -> None:
    """A process must never open and close a database file without SQLite, which would release its POSIX locks on the
    file (https://www.sqlite.org/howtocorrupt.html, 2.2): so another file is created and linked."""
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
    """Pragmas: https://www.sqlite.org/pragma.html. ``_begin`` starts transactions in place of Python's sqlite3."""
    connection.isolation_level = None
    busy = f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}"
    for pragma in (busy, _WAL, f"PRAGMA synchronous = {SYNCHRONOUS}", "PRAGMA foreign_keys = ON"):
        connection.execute(pragma).close()


def _begin(connection: Connection) -> None:
    # A deferred transaction that starts to write later fails at once if another one wrote meanwhile; IMMEDIATE waits.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _refuse_nul(_connection: object, _cursor: object, _statement: str, values: Any, *_: object) -> None:
    """On every database, because PostgreSQL cannot store it."""
    for row in values if isinstance(values, list) else [values]:
        for value in row.values() if isinstance(row, dict) else row:
            if isinstance(value, str) and "\0" in value:
                raise Invalid("text", ascii(value[:80])[1:-1], "text without the character NUL")


LOG = logging.getLogger(__name__)

T = TypeVar("T")

LAST_RECORD = "pinner.last_record"
"""The key in ``Connection.info`` of the transaction's last audit record, its number and hash."""

WAITS = (0.1, 0.4, 1.5)
"""Seconds before each repetition. A database server restarts in about one second."""

_ENDED_BY_POSTGRESQL = ("40001", "40P01", "57P01", "57P02", "57P03")
"""Serialization failure, deadlock, and a server that stops or starts
(https://www.postgresql.org/docs/current/errcodes-appendix.html)."""

_ENDED_BY_MARIADB = (1047, 1053, 1213, 1927, 2002, 2003, 2006, 2013)
"""A node without its cluster, shutdown, deadlock, killed, and lost connections
(https://mariadb.com/kb/en/mariadb-error-codes/). Galera reports a conflict of two nodes as a deadlock."""


def write(engine: Engine, work: Callable[[Connection], T]) -> T:
    """After a deadlock or a lost connection, ``work`` is run again. After one lost in the commit, the last audit record
    shows whether the transaction is stored; without one ``work`` must be repeatable. Raises StoreUnavailable."""
    waits = iter(WAITS)
    while True:
        record: tuple[int, str] | None = None
        try:
            with writing(engine) as connection:
                connection.info.pop(LAST_RECORD, None)
                result = work(connection)
                record = connection.info.pop(LAST_RECORD, None)
            return result
        except StoreUnavailable as error:
            wait = next(waits, None)
            if wait is None or not _is_transient(engine, error.__cause__):
                raise
            LOG.warning("%s; next attempt in %g s", error, wait)
            time.sleep(wait)
            if record is not None and _is_stored(engine, record):
                return result


def _is_transient(engine: Engine, cause: BaseException | None) -> bool:
    if not isinstance(cause, DBAPIError) or engine.dialect.name == "sqlite":
        return False
    if cause.connection_invalidated:
        return True
    if engine.dialect.name in MARIADB:
        return bool(cause.orig and cause.orig.args and cause.orig.args[0] in _ENDED_BY_MARIADB)
    # Where no connection was made, there is no state.
    state = getattr(cause.orig, "sqlstate", None)
    return state in _ENDED_BY_POSTGRESQL or (state is None and cause.statement is None)


def _is_stored(engine: Engine, record: tuple[int, str]) -> bool:
    """Raises StoreUnavailable if the database does not answer for longer: then nobody knows."""
    seq, digest = record
    for wait in (*WAITS, None):
        try:
            with reading(engine) as connection:
                stored = connection.execute(select(tables.audit.c.hash).filter_by(seq=seq)).scalar()
            return bool(stored == digest)
        except StoreUnavailable:
            if wait is None:
                raise
            time.sleep(wait)
    raise AssertionError


def put_host_row(connection: Connection, table: Table, host: str, values: dict[str, Any]) -> None:
    """In a table of at most one row a host."""
    if not connection.execute(update(table).filter_by(host=host).values(values)).rowcount:
        connection.execute(insert(table).values(host=host, **values))
