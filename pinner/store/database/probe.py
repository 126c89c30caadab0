"""What a monitor asks of the central database: its answer, room, size and runs."""

import os
import tempfile
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import func, insert, select, text

from pinner.model.errors import StoreUnavailable
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, translated

_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
_MARIADB = "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"

_ROW = 8192
"""Bytes, for which PostgreSQL finds no room in its present pages."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class DatabaseProbe(Repository):
    """Each method raises StoreUnavailable."""

    def check(self) -> None:
        """SQLite's folder must have room for a run, a server for a row."""
        with reading(self._engine) as connection:
            connection.execute(select(tables.audit_chain.c.id).limit(1)).all()
        if self._engine.dialect.name == "sqlite":
            require_room(Path(str(self._engine.url.database)).resolve().parent)
        else:
            self._try_row()

    def _try_row(self) -> None:
        """Nobody waits for it: no other transaction has its key."""
        row = {"actor": "", "key": uuid.uuid4().hex, "fingerprint": "", "at": _NO_TIME, "status": 0, "location": ""}
        with translated(self._engine), self._engine.connect() as connection:
            connection.execute(insert(tables.idempotency_keys).values(row | {"body": os.urandom(_ROW)}))
            connection.rollback()

    def size(self) -> int:
        """Bytes, without SQLite's write-ahead log."""
        with reading(self._engine) as connection:
            size = connection.execute(text(_SIZES.get(self._engine.dialect.name, _MARIADB))).scalar()
        return int(size or 0)

    def runs(self) -> Mapping[tuple[str, str], int]:
        columns = (tables.runs.c.host, tables.runs.c.state)
        with reading(self._engine) as connection:
            rows = connection.execute(select(*columns, func.count()).group_by(*columns)).all()
        return {(host, state): count for host, state, count in rows}


ROOM = 1 << 20
"""Bytes of the records of a run of 500 changes."""


def require_room(folder: Path) -> None:
    """Raises StoreUnavailable where ROOM bytes cannot be written to the folder. Leaves nothing there."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError as error:
        raise StoreUnavailable(str(folder), f"no room for the next run: {error.strerror}") from None
