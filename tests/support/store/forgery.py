"""Manipulations of an audit trail by somebody who may write its database: with correct hashes, without triggers."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pinner.model.run.agent_audit import ChainHead
from pinner.store.audit.chain import START, link

Row = dict[str, Any]


@contextmanager
def opened(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that has dropped every trigger, as the owner of the file can."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        connection.commit()


def rewrite(
    database: Path, change: Callable[[list[Row]], list[Row]], table: str = "audit", start: ChainHead = START
) -> None:
    """Replace the records of a chain by those that ``change`` makes of them, numbered and with correct hashes.

    The centre's records up to ``start`` are then removed as by retention.
    """
    with opened(database) as connection:
        rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY seq")]
        made = link(start, change([dict(row) for row in rows]))
        connection.execute(f"DELETE FROM {table}")
        for row in made:
            names = ", ".join(row)
            marks = ", ".join(f":{name}" for name in row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", row)
        if table == "audit":
            last = made[-1] if made else {"seq": 0, "hash": ""}
            ends = last | {"purged": start.seq, "through": start.hash}
            numbers = "seq = :seq, hash = :hash, purged_seq = :purged, purged_hash = :through"
            connection.execute(f"UPDATE audit_chain SET {numbers}", ends)


def execute(database: Path, *statements: str) -> None:
    """Execute statements as the owner of the file."""
    with opened(database) as connection:
        for statement in statements:
            connection.execute(statement)


def copy(database: Path, to: Path) -> None:
    """A copy of the database with all that its write-ahead log has."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def put_back(database: Path, older: Path) -> None:
    """Put an older copy in the place of the database, as ``cp`` does while nobody has it open."""
    for name in (f"{database}-wal", f"{database}-shm"):
        Path(name).unlink(missing_ok=True)
    shutil.copyfile(older, database)
