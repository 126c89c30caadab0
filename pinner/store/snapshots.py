"""Snapshots: the same content is stored once."""

from sqlalchemy import Engine, insert, select

from pinner import codec
from pinner.bounded_cache import BoundedCache
from pinner.model.errors import NotFound
from pinner.model.snapshot import Snapshot
from pinner.store import tables
from pinner.store.engine import reading, writing

KEPT = 4
"""Snapshots that stay in memory, because several plans are often made from one. A large host's takes a few MB."""


class Snapshots:
    """The snapshots of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: BoundedCache[str, Snapshot] = BoundedCache(KEPT)

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
        kept = self._kept.get(snapshot)
        column = tables.snapshots.c.body if kept is None else tables.snapshots.c.id
        with reading(self._engine) as connection:
            found = connection.execute(select(column).filter_by(id=snapshot)).scalar()
        if found is None:
            raise NotFound("snapshot", snapshot)
        if kept is None:
            kept = codec.load(Snapshot, found, "snapshot")
            self._kept.put(snapshot, kept)
        return kept
