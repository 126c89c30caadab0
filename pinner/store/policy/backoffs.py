"""The backoffs of each host: they outlive a restart of the service."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, Engine, select

from pinner import codec
from pinner.model.change import TargetKey
from pinner.model.policy.backoff import Backoff, Backoffs
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.host_row import put_host_row
from pinner.store.database.write import write

_BACKOFFS = codec.adapter(tuple[tuple[TargetKey, Backoff], ...])


class BackoffTable:
    """The backoffs of one database, in one row for each host."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, host: str) -> Backoffs:
        """The backoffs of a host."""
        with reading(self._engine) as connection:
            return _of(connection, host)

    def change(self, host: str, change: Callable[[Backoffs], Backoffs], at: datetime) -> Backoffs:
        """Change the backoffs of a host in one transaction; returns the new ones."""

        def store(connection: Connection) -> Backoffs:
            changed = change(_of(connection, host))
            put_host_row(connection, tables.backoffs, host, _row(changed, at))
            return changed

        return write(self._engine, store)

    def put(self, host: str, backoffs: Backoffs, at: datetime) -> None:
        """Store the backoffs of a host, which replace its earlier ones."""
        self.change(host, lambda _: backoffs, at)


def _of(connection: Connection, host: str) -> Backoffs:
    body = connection.execute(select(tables.backoffs.c.body).filter_by(host=host)).scalar()
    return {} if body is None else dict(_BACKOFFS.validate_json(body))


def _row(backoffs: Backoffs, at: datetime) -> dict[str, object]:
    return {"stored_at": at, "body": _BACKOFFS.dump_json(tuple(backoffs.items())).decode()}
