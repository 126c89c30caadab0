"""Snapshots: the same content is stored once."""

import hashlib
import zlib
from collections.abc import Iterable
from typing import TypeVar

from sqlalchemy import Connection, Engine, insert, select

from pinner import codec
from pinner.bounded_cache import BoundedCache
from pinner.model.errors import NotFound
from pinner.model.run.audit import AuditEvent
from pinner.model.snapshot import Snapshot
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write

KEPT = 4
"""In memory, because several plans are often made from one; a few MB each for a large host."""


class Snapshots:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: BoundedCache[str, Snapshot] = BoundedCache(KEPT)

    def add(self, snapshot: Snapshot, events: Iterable[AuditEvent] = ()) -> str:
        """Store a snapshot if it is new; returns its id, the hash of its content."""
        events = tuple(events)

        def store(connection: Connection) -> str:
            key = add_snapshot(connection, snapshot)
            append_events(connection, events)
            return key

        return write(self._engine, store)

    def get(self, snapshot: str) -> Snapshot:
        """Raises NotFound."""
        kept = self._kept.get(snapshot)
        column = tables.snapshots.c.packed if kept is None else tables.snapshots.c.id
        with reading(self._engine) as connection:
            found = connection.execute(select(column).filter_by(id=snapshot)).scalar()
            if found is None:
                raise NotFound("snapshot", snapshot)
            if kept is None:
                kept = unpack(Snapshot, found)
                self._kept.put(snapshot, kept)
        return kept


def add_snapshot(connection: Connection, snapshot: Snapshot) -> str:
    """Within the caller's transaction, if it is new; returns its id."""
    body = codec.dump(snapshot)
    key = hashlib.sha256(body).hexdigest()
    if connection.execute(select(tables.snapshots.c.id).filter_by(id=key)).scalar() is None:
        row = {"id": key, "host": snapshot.host, "taken_at": snapshot.taken_at, "packed": pack(body)}
        connection.execute(insert(tables.snapshots).values(row))
    return key


T = TypeVar("T")

LEVEL = 6
"""zlib's default: level 9 saves 2 % more and takes twice the time."""


def pack(body: bytes) -> bytes:
    """Compressed JSON (zlib, RFC 1950)."""
    return zlib.compress(body, LEVEL)


def unpack(kind: type[T], packed: bytes) -> T:
    """Raises zlib.error or ValueError where it is damaged, which ``reading`` translates."""
    value: T = codec.adapter(kind).validate_json(zlib.decompress(packed))
    return value
