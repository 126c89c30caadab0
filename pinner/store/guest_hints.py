"""What events told of guests: one row for each."""

from datetime import datetime

from sqlalchemy import Engine, delete, insert, select, update

from pinner import codec
from pinner.model.event import GuestHint
from pinner.model.guest import NovaIdentity
from pinner.store import tables
from pinner.store.engine import reading, writing


class GuestHints:
    """What was told of the guests of all hosts, in one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, host: str) -> dict[str, GuestHint]:
        """What was told of the guests of a host, by UUID."""
        table = tables.guest_hints.c
        query = select(table.guest, table.host, table.at, table.nova, table.leaving_until).filter_by(host=host)
        with reading(self._engine) as connection:
            return {row.guest: GuestHint(row.guest, row.host, row.at, _nova(row.nova), row.leaving_until)
                    for row in connection.execute(query)}  # fmt: skip

    def put(self, guest_hints: GuestHint) -> None:
        """Store what is known of a guest, in place of what was; nothing where something later is known, of whatever
        host."""
        values = {
            "host": guest_hints.host,
            "at": guest_hints.at,
            "nova": codec.dump(guest_hints.nova).decode() if guest_hints.nova else "",
            "leaving_until": guest_hints.leaving_until,
        }
        with writing(self._engine) as connection:
            here = tables.guest_hints.c.guest == guest_hints.guest
            known: datetime | None = connection.execute(select(tables.guest_hints.c.at).where(here)).scalar()
            if known is None:
                connection.execute(insert(tables.guest_hints).values(guest=guest_hints.guest, **values))
            elif known <= guest_hints.at:
                connection.execute(update(tables.guest_hints).where(here).values(values))

    def forget(self, guest: str, host: str) -> None:
        """Forget a guest of a host; one that is on another host by now is kept."""
        with writing(self._engine) as connection:
            connection.execute(delete(tables.guest_hints).filter_by(guest=guest, host=host))


def _nova(body: str) -> NovaIdentity | None:
    return codec.load(NovaIdentity, body, "nova") if body else None
