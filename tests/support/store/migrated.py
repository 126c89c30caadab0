"""New SQLite databases of the newest schema for the tests: alembic takes 40 ms, the statements of its result 3.

The migrations run once in each process of tests; a test of the migrations takes the fixture ``migrations``.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Engine, inspect

from pinner.store.database import schema
from pinner.store.database.engine import connect
from pinner.store.database.schema import migrating

migrate = schema.upgrade
"""The real upgrade."""


def upgrade(engine: Engine) -> None:
    """schema.upgrade: an empty SQLite database gets the newest schema at once, without the migrations."""
    if engine.dialect.name != "sqlite" or not _fill(engine):
        migrate(engine)


def _fill(engine: Engine) -> bool:
    with migrating(engine) as connection:
        is_empty = not inspect(connection).has_table("alembic_version")
        if is_empty:
            _execute(connection, statements())
    return is_empty


def _execute(connection: Connection, lines: Sequence[str]) -> None:
    for line in lines:
        connection.exec_driver_sql(line)


@cache
def statements() -> Sequence[str]:
    """The SQL statements that make an SQLite database as the migrations do."""
    with TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{folder}/migrated.sqlite")
        migrate(engine)
        engine.dispose()
        return dump(Path(folder) / "migrated.sqlite")


def dump(path: Path) -> Sequence[str]:
    """The SQL statements that make a copy of an SQLite database, without those of the transaction."""
    with closing(sqlite3.connect(path)) as database:
        return [line for line in database.iterdump() if line not in ("BEGIN TRANSACTION;", "COMMIT;")]
