"""The changes of earlier boots of the host: their threads have ended."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Engine, and_, select, update

from pinner.model.kinds import DEFINED
from pinner.model.run.journal import EARLIER_BOOT
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write
from pinner.store.runs.in_force import json_value


def end_earlier_boots(engine: Engine, boot: str, at: datetime, keeps: Callable[[str], bool]) -> int:
    """Store the changes of ended runs from other boots as ``gone``; see apply's Journal. Returns their number."""
    runs, table = tables.runs.c, tables.entries.c
    ended = and_(runs.boot != "", runs.boot != boot, runs.state != "running")
    with reading(engine) as connection:
        if connection.execute(select(runs.seq).where(ended).limit(1)).first() is None:
            return 0
    due = table.run.in_(select(runs.id).where(ended)) & table.state.in_(("intent", "done", "stuck"))
    # The journal is always SQLite. Changes of metadata have no owner in its column.
    owner = json_value(table.change, "$.target.owner", damaged=table.owner)
    with reading(engine) as connection:
        guests = connection.execute(select(owner).where(due, table.kind == "metadata").distinct()).scalars().all()
    kept = [guest for guest in guests if keeps(guest)]
    persisted = table.run.in_(select(runs.id).where(ended, runs.persist))
    # The guest of damaged metadata is not known, so it may be a saved one that keeps its pins.
    lasts = persisted | owner.in_(kept) | ((table.kind == "metadata") & (owner == ""))
    due &= ~(table.kind.in_(DEFINED) & lasts)
    change = update(tables.entries).where(due).values(state="gone", at=at, error=EARLIER_BOOT)
    return int(write(engine, lambda connection: connection.execute(change).rowcount))
