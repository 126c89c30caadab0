"""What a monitor asks of the central database: whether it answers, its size, the number of its runs."""

import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, func, insert, select, text

from pinner.store.database import tables
from pinner.store.database.engine import reading, translated
from pinner.store.database.room import require_room

_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
_MARIADB = "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"


_ROW = 8192
"""Bytes of a row that is tried; PostgreSQL finds no room for it in pages that it has."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class Probe:
    """Asks one database. Every method raises StoreUnavailable."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self) -> None:
        """Return if the database answers, and takes more: of SQLite the folder has room, and a server takes a row.

        A server that has no room left refuses the row only where the row needs room of its own.
        """
        with reading(self._engine) as connection:
            connection.execute(select(tables.audit_chain.c.id).limit(1)).all()
        if self._engine.dialect.name == "sqlite":
            require_room(Path(str(self._engine.url.database)).resolve().parent)
        else:
            self._try_row()

    def _try_row(self) -> None:
        """Insert a row, and roll it back. Nobody waits for it: no other transaction has its key."""
        row = {"actor": "", "key": uuid.uuid4().hex, "fingerprint": "", "at": _NO_TIME, "status": 0, "location": ""}
        with translated(self._engine), self._engine.connect() as connection:
            connection.execute(insert(tables.idempotency_keys).values(row | {"body": os.urandom(_ROW)}))
            connection.rollback()

    def size(self) -> int:
        """The bytes of the database; SQLite's file without its write-ahead log."""
        with reading(self._engine) as connection:
            found = connection.execute(text(_SIZES.get(self._engine.dialect.name, _MARIADB))).scalar()
        return int(found or 0)

    def runs(self) -> Mapping[tuple[str, str], int]:
        """The number of stored runs by host and state."""
        columns = (tables.runs.c.host, tables.runs.c.state)
        with reading(self._engine) as connection:
            rows = connection.execute(select(*columns, func.count()).group_by(*columns)).all()
        return {(host, state): count for host, state, count in rows}
