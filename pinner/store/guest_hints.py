"""What only events report about guests: one row for each guest and host."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Delete, Row, String, and_, delete, insert, select, update
from sqlalchemy import type_coerce as as_type

from pinner import codec
from pinner.model.event import EventOrder, GuestHint
from pinner.model.guest.guest import NovaIdentity
from pinner.model.page import batches
from pinner.model.run.audit import AuditEvent
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, write

BATCH = 500


class GuestHints(Repository):
    def of(self, host: str) -> dict[str, GuestHint]:
        query = select(tables.guest_hints).filter_by(host=host)
        with reading(self._engine) as connection:
            return {row.guest: _hint(row) for row in connection.execute(query)}

    def shorten(self, host: str, latest: datetime) -> None:
        """No guest of the host counts as leaving after ``latest``."""
        table = tables.guest_hints
        longer = as_type(table.c.leaving_until, String) > codec.utc_text(latest)
        change = update(table).filter_by(host=host).where(longer).values(leaving_until=latest)
        write(self._engine, lambda connection: connection.execute(change))

    def change(
        self,
        guest: str,
        host: str,
        after: Callable[[GuestHint | None], tuple[GuestHint | None, str]],
        record: Callable[[str], AuditEvent],
    ) -> str:
        """Replace the hint by ``after`` of it (None: delete it), and append the audit event that ``record`` makes of
        the text beside it; returns the text."""
        table = tables.guest_hints
        this = and_(table.c.guest == guest, table.c.host == host)

        def store(connection: Connection) -> str:
            row = connection.execute(select(table).where(this)).one_or_none()
            before = _hint(row) if row else None
            hint, why = after(before)
            if hint is None:
                connection.execute(delete(table).where(this))
            elif before is None:
                connection.execute(insert(table).values(guest=guest, host=host, **_columns(hint)))
            elif hint != before:
                connection.execute(update(table).where(this).values(_columns(hint)))
            append_events(connection, [record(why)])
            return why

        return write(self._engine, store)

    def old(self, host: str, before: datetime) -> tuple[str, ...]:
        table = tables.guest_hints.c
        query = select(table.guest).where(table.host == host, tables.is_before(table.at, before))
        with reading(self._engine) as connection:
            return tuple(connection.execute(query.order_by(table.guest)).scalars())

    def forget(self, host: str, guests: Sequence[str], before: datetime) -> int:
        table = tables.guest_hints
        old = and_(table.c.host == host, tables.is_before(table.c.at, before))
        statements = (delete(table).where(old, table.c.guest.in_(part)) for part in batches(guests, BATCH))
        return sum(write(self._engine, partial(_rowcount, statement=statement)) for statement in statements)


def _hint(row: Row[Any]) -> GuestHint:
    order = codec.load(EventOrder, row.event_order, "event_order") if row.event_order else EventOrder()
    nova = codec.load(NovaIdentity, row.nova, "nova") if row.nova else None
    return GuestHint(row.guest, row.host, row.at, nova, row.leaving_until, order)


def _columns(hint: GuestHint) -> dict[str, object]:
    return {
        "at": hint.at,
        "nova": codec.dump(hint.nova).decode() if hint.nova else "",
        "leaving_until": hint.leaving_until,
        "event_order": codec.dump(hint.order).decode(),
    }


def _rowcount(connection: Connection, statement: Delete) -> int:
    return int(connection.execute(statement).rowcount)
