"""What events told of guests: one row for each."""

from datetime import datetime

from sqlalchemy import Engine, delete, insert, select, update

from pinner import codec
from pinner.model.event import Told
from pinner.model.guest import NovaIdentity
from pinner.store import tables
from pinner.store.engine import reading, writing


class Tellings:
    """What was told of the guests of all hosts, in one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, host: str) -> dict[str, Told]:
        """What was told of the guests of a host, by UUID."""
        table = tables.told.c
        query = select(table.guest, table.host, table.at, table.nova, table.leaving_until).filter_by(host=host)
        with reading(self._engine) as connection:
            return {row.guest: Told(row.guest, row.host, row.at, _nova(row.nova), row.leaving_until)
                    for row in connection.execute(query)}  # fmt: skip

    def put(self, told: Told) -> None:
        """Store what is known of a guest, in place of what was; nothing where something later is known, of whatever
        host."""
        values = {
            "host": told.host,
            "at": told.at,
            "nova": codec.dump(told.nova).decode() if told.nova else "",
            "leaving_until": told.leaving_until,
        }
        with writing(self._engine) as connection:
            here = tables.told.c.guest == told.guest
            known: datetime | None = connection.execute(select(tables.told.c.at).where(here)).scalar()
            if known is None:
                connection.execute(insert(tables.told).values(guest=told.guest, **values))
            elif known <= told.at:
                connection.execute(update(tables.told).where(here).values(values))

    def forget(self, guest: str, host: str) -> None:
        """Forget a guest of a host; one that is on another host by now is kept."""
        with writing(self._engine) as connection:
            connection.execute(delete(tables.told).filter_by(guest=guest, host=host))


def _nova(body: str) -> NovaIdentity | None:
    return codec.load(NovaIdentity, body, "nova") if body else None
