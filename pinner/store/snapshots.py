"""Snapshots: the same content is stored once."""

from sqlalchemy import Engine, insert, select

from pinner import codec
from pinner.model.errors import NotFound
from pinner.model.snapshot import Snapshot
from pinner.store import tables
from pinner.store.engine import reading, writing


class Snapshots:
    """The snapshots of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, snapshot: Snapshot) -> str:
        """Store a snapshot if it is not stored yet; returns its id, the hash of its content."""
        key = codec.content_hash(snapshot)
        row = {
            "id": key,
            "host": snapshot.host,
            "taken_at": snapshot.taken_at,
            "body": codec.dump(snapshot).decode(),
        }
        with writing(self._engine) as connection:
            if connection.execute(select(tables.snapshots.c.id).filter_by(id=key)).scalar() is None:
                connection.execute(insert(tables.snapshots).values(row))
        return key

    def get(self, snapshot: str) -> Snapshot:
        """The snapshot with this id. Raises NotFound."""
        with reading(self._engine) as connection:
            body = connection.execute(select(tables.snapshots.c.body).filter_by(id=snapshot)).scalar()
        if body is None:
            raise NotFound("snapshot", snapshot)
        return codec.load(Snapshot, body, "snapshot")
