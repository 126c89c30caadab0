"""Facts about guests that are known from events alone: one row for each guest."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, Engine, String, delete, insert, or_, select, update
from sqlalchemy import type_coerce as as_type

from pinner import codec
from pinner.model.audit import AuditEvent
from pinner.model.event import GuestHint
from pinner.model.guest import NovaIdentity
from pinner.store import tables
from pinner.store.audit import append_events
from pinner.store.engine import reading
from pinner.store.write import write


class GuestHints:
    """The guest hints of one database, for the guests of all hosts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, host: str) -> dict[str, GuestHint]:
        """The hints on the guests of a host, by guest UUID."""
        table = tables.guest_hints.c
        query = select(table.guest, table.host, table.at, table.nova, table.leaving_until).filter_by(host=host)
        with reading(self._engine) as connection:
            return {row.guest: GuestHint(row.guest, row.host, row.at, _nova(row.nova), row.leaving_until)
                    for row in connection.execute(query)}  # fmt: skip

    def shorten(self, host: str, latest: datetime) -> None:
        """Let no guest of a host count as leaving after ``latest``."""
        table = tables.guest_hints
        longer = as_type(table.c.leaving_until, String) > tables.utc_text(latest)
        change = update(table).filter_by(host=host).where(longer).values(leaving_until=latest)
        write(self._engine, lambda connection: connection.execute(change))

    def put(self, hint: GuestHint, events: Iterable[AuditEvent] = (), *, now: datetime | None = None) -> None:
        """Store a hint, which replaces the guest's earlier one, and append audit events in the same transaction.

        A later hint, of this or another host, stays, unless it is later than ``now``: then the clock was set back since
        that hint was stored, and it must not hide the hints until the clock is as late again.
        """
        events = tuple(events)
        values = {
            "host": hint.host,
            "at": hint.at,
            "nova": codec.dump(hint.nova).decode() if hint.nova else "",
            "leaving_until": hint.leaving_until,
        }

        def store(connection: Connection) -> None:
            same_guest = tables.guest_hints.c.guest == hint.guest
            stored: datetime | None = connection.execute(select(tables.guest_hints.c.at).where(same_guest)).scalar()
            if stored is None:
                connection.execute(insert(tables.guest_hints).values(guest=hint.guest, **values))
            elif stored <= hint.at or (now is not None and stored > now):
                connection.execute(update(tables.guest_hints).where(same_guest).values(values))
            append_events(connection, events)

        write(self._engine, store)

    def forget(
        self, guest: str, host: str, at: datetime, events: Iterable[AuditEvent] = (), *, now: datetime | None = None
    ) -> None:
        """Delete the hint on a guest that left a host at this time, and append audit events in the same transaction.

        A hint on the same guest of another host stays, and so does a later hint, except as for ``put``.
        """
        events = tuple(events)

        def delete_hint(connection: Connection) -> None:
            stored = tables.guest_hints.c.at
            old = or_(stored <= at, stored > now) if now else stored <= at
            connection.execute(delete(tables.guest_hints).filter_by(guest=guest, host=host).where(old))
            append_events(connection, events)

        write(self._engine, delete_hint)


def _nova(body: str) -> NovaIdentity | None:
    return codec.load(NovaIdentity, body, "nova") if body else None
