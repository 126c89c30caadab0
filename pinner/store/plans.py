import hashlib
import threading
import zlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from cachetools import LRUCache
from sqlalchemy import Connection, Engine, insert, select

from pinner import codec
from pinner.model.errors import NotFound
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.run.audit import AuditEvent
from pinner.model.snapshot import Snapshot
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, write
from pinner.store.database.paging import page

T = TypeVar("T")

_SUMMARY = [tables.plans.c[name] for name in PlanSummary.__dataclass_fields__]

KEPT_SNAPSHOTS = 4
"""In memory, a few MB for a large host: several plans are often made from one."""
LEVEL = 6


class Plans(Repository):
    def add(
        self,
        plan: Plan,
        created_at: datetime,
        events: Iterable[AuditEvent] = (),
        snapshot: Snapshot | None = None,
        *,
        record_again: bool = False,
    ) -> bool:
        """Whether it is new; a stored plan is never changed. ``snapshot``: None where it is stored. The audit events
        are appended for a new plan, with ``record_again`` in any case. One transaction."""
        events = tuple(events)

        def store(connection: Connection) -> bool:
            if snapshot is not None:
                add_snapshot(connection, snapshot)
            is_new = connection.execute(select(tables.plans.c.id).filter_by(id=plan.id)).scalar() is None
            if is_new:
                connection.execute(insert(tables.plans).values(_row(plan, created_at)))
            if is_new or record_again:
                append_events(connection, events)
            return is_new

        return write(self._engine, store)

    def get(self, plan: str) -> Plan:
        """Raises NotFound."""
        with reading(self._engine) as connection:
            packed = connection.execute(select(tables.plans.c.packed).filter_by(id=plan)).scalar()
            if packed is None:
                raise NotFound("plan", plan)
            stored: Plan = unpack(Plan, packed)
            return stored

    def list(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        """Raises Invalid for limit and marker."""
        query = select(*_SUMMARY, tables.plans.c.seq)
        if host is not None:
            query = query.filter_by(host=host)
        with reading(self._engine) as connection:
            return page(connection, query, tables.plans, part, lambda row: PlanSummary(*row[: len(_SUMMARY)]))


def _row(plan: Plan, created_at: datetime) -> dict[str, Any]:
    return {
        "id": plan.id,
        "host": plan.host,
        "strategy": plan.request.strategy,
        "created_at": created_at,
        "changes": len(plan.changes),
        "unplaced": len(plan.unplaced),
        "blocked": plan.blocked,
        "snapshot": plan.basis.snapshot,
        "packed": pack(codec.dump(plan)),
    }


class Snapshots:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: LRUCache[str, Snapshot] = LRUCache(KEPT_SNAPSHOTS)
        self._lock = threading.Lock()

    def add(self, snapshot: Snapshot, events: Iterable[AuditEvent] = ()) -> str:
        """Returns the id, the content's hash: a snapshot is stored once."""
        events = tuple(events)

        def store(connection: Connection) -> str:
            key = add_snapshot(connection, snapshot)
            append_events(connection, events)
            return key

        return write(self._engine, store)

    def get(self, snapshot: str) -> Snapshot:
        """Raises NotFound."""
        with self._lock:
            kept = self._kept.get(snapshot)
        column = tables.snapshots.c.packed if kept is None else tables.snapshots.c.id
        with reading(self._engine) as connection:
            row = connection.execute(select(column).filter_by(id=snapshot)).scalar()
            if row is None:
                raise NotFound("snapshot", snapshot)
            if kept is None:
                kept = unpack(Snapshot, row)
                with self._lock:
                    self._kept[snapshot] = kept
        return kept


def add_snapshot(connection: Connection, snapshot: Snapshot) -> str:
    """Within the caller's transaction, if it is new."""
    body = codec.dump(snapshot)
    key = hashlib.sha256(body).hexdigest()
    if connection.execute(select(tables.snapshots.c.id).filter_by(id=key)).scalar() is None:
        row = {"id": key, "host": snapshot.host, "taken_at": snapshot.taken_at, "packed": pack(body)}
        connection.execute(insert(tables.snapshots).values(row))
    return key


def pack(body: bytes) -> bytes:
    return zlib.compress(body, LEVEL)


def unpack(kind: type[T], packed: bytes) -> T:
    """Raises zlib.error or ValueError where it is damaged; ``reading`` translates these."""
    value: T = codec.adapter(kind).validate_json(zlib.decompress(packed))
    return value
