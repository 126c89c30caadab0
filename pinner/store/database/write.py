"""Write transactions, repeated where the database ended them and nothing was stored."""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, insert, select, update
from sqlalchemy.exc import DBAPIError

from pinner.model.errors import StoreUnavailable
from pinner.store.database import tables
from pinner.store.database.engine import MARIADB, reading, writing

LOG = logging.getLogger(__name__)

T = TypeVar("T")

LAST_RECORD = "pinner.last_record"
"""The key in ``Connection.info`` of the transaction's last audit record, its number and hash."""

WAITS = (0.1, 0.4, 1.5)
"""Seconds before each repetition. A database server restarts in about one second."""

_POSTGRESQL = ("40001", "40P01", "57P01", "57P02", "57P03")
"""Serialization failure, deadlock, and a server that stops or starts
(https://www.postgresql.org/docs/current/errcodes-appendix.html)."""

_MARIADB = (1047, 1053, 1213, 1927, 2002, 2003, 2006, 2013)
"""A node without its cluster, shutdown, deadlock, killed, and lost connections
(https://mariadb.com/kb/en/mariadb-error-codes/). Galera reports a conflict of two nodes as a deadlock."""


def write(engine: Engine, work: Callable[[Connection], T]) -> T:
    """After a deadlock or a lost connection, ``work`` is run again. Where the connection is lost during the commit, the
    last audit record of ``work`` shows whether the transaction is stored; a ``work`` without audit records must be
    repeatable. Raises StoreUnavailable."""
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
        return bool(cause.orig and cause.orig.args and cause.orig.args[0] in _MARIADB)
    # Where no connection was made, there is no state.
    state = getattr(cause.orig, "sqlstate", None)
    return state in _POSTGRESQL or (state is None and cause.statement is None)


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
