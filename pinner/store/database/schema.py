"""The schema revision of a database, upgrades from earlier releases, and the settings that a server must have. MariaDB
commits each ALTER TABLE by itself: so a table marks a migration while it lasts, and a database with this table is
refused, with the repair."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from pinner.model.errors import OtherRevision, StoreUnavailable
from pinner.store.database.damage import new_database
from pinner.store.database.engine import MARIADB, reading, translated, where

LOCK_SECONDS = 60

_LOCK = 5011210
"""PostgreSQL's advisory lock of migrations: no other program uses this number in this database."""

_MARK = "unfinished_migration"
_MARK_TABLE = text("CREATE TABLE unfinished_migration AS SELECT :before AS before_it, :target AS target")
"""One statement, so that the table never exists without its row."""

_TRY_TRIGGER = text(
    "CREATE TRIGGER unfinished_migration_test BEFORE UPDATE ON unfinished_migration FOR EACH ROW SET @pinner = 1"
)


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """The write transaction of this database's only migration. Raises StoreUnavailable."""
    with translated(engine), engine.execution_options(writes=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        elif engine.dialect.name in MARIADB:
            _lock_mariadb(connection)
        yield connection


@contextmanager
def marked(connection: Connection, before: str, target: str) -> Iterator[None]:
    """Mark a migration on MariaDB until it is complete. Raises StoreUnavailable where pinner may create no triggers."""
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
    return connection.dialect.name not in MARIADB or not inspect(connection).has_table(_MARK)


def require_finished(connection: Connection) -> None:
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


MIN_PACKET = 4 * 2**20
"""Bytes of one statement: a text of 1 MiB can be twice as long there."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""SQL_ASCII stores pinner's bytes, which are UTF-8."""


def require_settings(connection: Connection) -> None:
    """Raises StoreUnavailable where the server cannot store pinner's values."""
    if connection.dialect.name == "postgresql":
        encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding not in _ENCODINGS:
            why = f"its encoding is {encoding}; pinner needs CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            raise StoreUnavailable(where(connection.engine), why)
    elif connection.dialect.name in MARIADB:
        packet = connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()
        if packet < MIN_PACKET:
            why = f"max_allowed_packet of the server is {packet}; pinner needs {MIN_PACKET} or more"
            raise StoreUnavailable(where(connection.engine), why)


if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = "1.0"

EMPTY = "base"
"""alembic's name for a database without tables."""


def current(engine: Engine) -> str:
    """EMPTY where the database has no tables. Raises StoreUnavailable."""
    with reading(engine) as connection:
        return _current(connection)


def ensure(engine: Engine) -> None:
    """Raises StoreUnavailable, and OtherRevision where no upgrade leads to this release."""
    with reading(engine) as connection:
        if is_finished(connection) and _version(connection) == NEWEST:
            return
        require_settings(connection)
    upgrade(engine)


def upgrade(engine: Engine) -> None:
    """One transaction. Raises like ``ensure``."""
    from alembic import command

    with migrating(engine) as connection, _config(connection) as config:
        revision = _current(connection)
        if revision != NEWEST:  # another process may have upgraded the database meanwhile
            with marked(connection, revision, NEWEST):
                command.upgrade(config, "head")


def _current(connection: Connection) -> str:
    require_finished(connection)
    return _version(connection)


def _version(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return EMPTY
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or EMPTY


@contextmanager
def _config(connection: Connection) -> Iterator["Config"]:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with as_file(files("pinner.migrations")) as scripts, _resolvable(scripts) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if (revision := _current(connection)) not in (EMPTY, *known):
            raise OtherRevision(where(connection.engine), revision, NEWEST, new_database(connection.engine))
        yield config


@contextmanager
def _resolvable(folder: Path) -> Iterator[Path]:
    """Without symbolic links, which alembic resolves; a copy where only open descriptors reach the installation."""
    if os.access(folder.resolve(), os.R_OK):
        yield folder
        return
    with TemporaryDirectory(prefix="pinner-") as copy:
        yield shutil.copytree(folder, Path(copy, "migrations"), ignore=shutil.ignore_patterns("__pycache__"))
