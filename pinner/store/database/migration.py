"""The transaction of a migration: one at a time on a database, and marked on MariaDB until it is complete.

SQLite and PostgreSQL undo a migration that stops half-way. MariaDB commits each ALTER TABLE by itself, so there a table
exists from a migration's begin to its end. A database that has this table is refused, with the repair.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from pinner.model.errors import StoreUnavailable
from pinner.store.database.engine import MARIADB, translated, where

LOCK_SECONDS = 60
"""How long a migration waits for another one."""

_LOCK = 5011210
"""The number of PostgreSQL's advisory lock of migrations: any number that no other program uses in this database."""

_MARK = "unfinished_migration"
_MARK_TABLE = text("CREATE TABLE unfinished_migration AS SELECT :before AS before_it, :target AS target")
"""One statement, so that the table never exists without its row."""

_TRY_TRIGGER = text(
    "CREATE TRIGGER unfinished_migration_test BEFORE UPDATE ON unfinished_migration FOR EACH ROW SET @pinner = 1"
)


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A connection in the write transaction of the only migration of this database. Raises StoreUnavailable."""
    with translated(engine), engine.execution_options(writes=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        elif engine.dialect.name in MARIADB:
            _lock_mariadb(connection)
        yield connection


@contextmanager
def marked(connection: Connection, before: str, target: str) -> Iterator[None]:
    """Mark a migration on MariaDB until it is complete. Raises StoreUnavailable where pinner may not create
    triggers."""
    if connection.dialect.name not in MARIADB:
        yield
        return
    connection.execute(_MARK_TABLE, {"before": before, "target": target})
    try:
        connection.execute(_TRY_TRIGGER)
    except DBAPIError as error:
        connection.execute(text(f"DROP TABLE {_MARK}"))
        why = f"pinner may not create triggers here: GRANT TRIGGER on the database to pinner's user ({error.orig})"
        raise StoreUnavailable(where(connection.engine), why) from None
    yield
    connection.execute(text(f"DROP TABLE {_MARK}"))


def is_finished(connection: Connection) -> bool:
    """Whether no migration is under way, and none has stopped half-way on MariaDB."""
    return connection.dialect.name not in MARIADB or not inspect(connection).has_table(_MARK)


def require_finished(connection: Connection) -> None:
    """Raises StoreUnavailable if a migration of this MariaDB database has stopped half-way."""
    if is_finished(connection):
        return
    before, target = connection.execute(text("SELECT before_it, target FROM unfinished_migration")).one()
    raise StoreUnavailable(
        where(connection.engine),
        f"its migration from revision {before} to {target} stopped half-way (or is under way), and MariaDB cannot undo "
        "a part. Restore the backup from before the migration, or create the database anew if it was empty; then run "
        "`pinner-manage db upgrade`",
    )


def _lock_mariadb(connection: Connection) -> None:
    # The lock ends with the connection, so the connection does not return to the pool.
    connection.detach()
    name = f"pinner.{connection.engine.url.database}"[:64]
    if not connection.execute(text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": LOCK_SECONDS}).scalar():
        raise StoreUnavailable(where(connection.engine), "another migration is under way")
