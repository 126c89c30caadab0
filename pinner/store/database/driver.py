"""The engine of an SQLAlchemy URL, and the settings of its connections whatever an administrator has set."""

from contextlib import closing
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from pinner.model.errors import Invalid

FIELD = "[database] connection"

BUSY_SECONDS = 10
"""How long a write transaction waits for another one before it fails."""

CONNECT_SECONDS = 10
"""How long a database server may take to accept a connection."""

_POOL = {"pool_size": 5, "max_overflow": 27}
"""The threads of a server that use the database at once: 16 requests, 8 event streams, and its own work. An answer that
a client reads slowly keeps its connection, and nobody else may wait for that."""

DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "mysql": "mariadb+pymysql"}
"""The driver of a URL that names none."""

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
    """An engine of an SQLAlchemy URL. The driver is imported, but no connection is opened. Raises Invalid for a wrong
    URL."""
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
    """A URL for a message: what comes before the @ may contain a password, and so may the parameters."""
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
    """Raises Invalid for parameters of the URL that the driver does not take; PyMySQL has no error of its own."""
    try:
        return dialect.connect(*positional, **named)
    except (TypeError, AttributeError, ValueError, LookupError):
        host = str(named.get("host", dialect.name))
        raise Invalid(FIELD, host, "a URL with parameters that the database driver takes") from None


def _limit_locks(connection: Any, _record: Any) -> None:
    """Let a write transaction wait at most BUSY_SECONDS for another one."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET lock_timeout = '{BUSY_SECONDS}s'")
    connection.commit()
