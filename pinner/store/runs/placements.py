"""The recorded placement of each host."""

from datetime import datetime

from sqlalchemy import Connection, Engine, select

from pinner import codec
from pinner.model.plan.plan import Placement
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import put_host_row, write
from pinner.store.runs.runs import last_applied


class Placements:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, host: str) -> tuple[Placement, int] | None:
        """The placement, and the number of the last run that it takes into account."""
        table = tables.placements.c
        with reading(self._engine) as connection:
            row = connection.execute(select(table.body, table.run_seq).filter_by(host=host)).one_or_none()
        return (codec.load(Placement, row.body, "placement"), row.run_seq) if row else None

    def put(self, placement: Placement, at: datetime, run_seq: int, last_run: int | None = None) -> None:
        """Replaces the earlier one.

        ``run_seq`` is the number of the last run that it takes into account. ``last_run`` is the number of the host's
        last applied run, as the caller has read it (0: none). If it is another one by now, nothing is stored: the
        placement would show the host as it was before.
        """
        values = {"stored_at": at, "run_seq": run_seq, "body": codec.dump(placement).decode()}

        def store(connection: Connection) -> None:
            if last_run is None or last_run == (last_applied(connection, placement.host) or (0, None))[0]:
                put_host_row(connection, tables.placements, placement.host, values)

        write(self._engine, store)
