"""What a monitor asks of the central database: whether it answers, its size, the number of its runs."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Engine, func, select, text

from pinner.store import tables
from pinner.store.engine import reading
from pinner.store.room import require_room

_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
}
_MARIADB = "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"


class Probe:
    """Asks one database. Every method raises StoreUnavailable."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self) -> None:
        """Return if the database answers, and has room for more. Of a database server the room is not known."""
        with reading(self._engine) as connection:
            connection.execute(select(tables.audit_chain.c.id).limit(1)).all()
        if self._engine.dialect.name == "sqlite" and (file := self._engine.url.database):
            require_room(Path(file).parent)

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
