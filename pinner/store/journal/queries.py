"""The journal's queries that need SQLite: its indices with conditions, and its functions for JSON."""

import json
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Engine, Select, and_, func, select, text, update

from pinner.model.cpuset import CpuSet
from pinner.model.kinds import DEFINED
from pinner.model.run.journal import EARLIER_BOOT, RecordedPins
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write
from pinner.store.runs.in_force import json_value


def end_earlier_boots(engine: Engine, boot: str, at: datetime, keeps: Callable[[str], bool]) -> int:
    """Store the changes of ended runs from other boots as ``gone``; returns their number."""
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


def distinct_values(column: Column[Any], condition: str) -> Select[tuple[Any]]:
    """The distinct values of a column of text, in the rows that meet a condition (a loose index scan).

    Each value costs one search in the index; SELECT DISTINCT would read all of it
    (https://www.sqlite.org/lang_with.html). An index on the column must have the same condition (CREATE INDEX ...
    WHERE), to the letter: SQLite does not compare a bound parameter with it.
    """
    smallest = select(func.min(column).label("value")).where(text(condition))
    found = smallest.where(column >= "").cte("found", recursive=True)
    following = smallest.where(column > found.c.value).scalar_subquery()
    found = found.union_all(select(following).where(found.c.value.is_not(None)))
    return select(found.c.value).where(found.c.value.is_not(None))


_PLACED = text(
    "SELECT guest.value FROM json_each(:guests) AS guest "
    "WHERE EXISTS (SELECT 1 FROM entries WHERE entries.owner = guest.value AND entries.state <> 'failed')"
)
"""Of a guest that a run touched, the first change is that of the metadata, and it did not fail. All changes of a guest
that could not be read have failed."""
_PERSISTED = text(
    "SELECT DISTINCT entries.owner, entries.kind, json_extract(entries.change, '$.target.part'), entries.mask "
    "FROM json_each(:guests) AS guest JOIN entries ON entries.owner = guest.value JOIN runs ON runs.id = entries.run "
    "WHERE runs.persist AND (entries.state IN ('intent', 'done', 'stuck') "
    "OR entries.state = 'gone' AND runs.state NOT IN ('undone', 'rolled_back', 'rolled_back_partly'))"
)
"""An entry whose guest is gone may have written the definition, until the run is rolled back."""


def recorded_pins(engine: Engine, guests: Collection[str]) -> RecordedPins:
    """By guest UUID. Each guest costs searches in the index of owners."""
    asked = {"guests": json.dumps(sorted(guests))}
    with reading(engine) as connection:
        placed = frozenset(connection.execute(_PLACED, asked).scalars())
        if not placed:
            return RecordedPins()
        found = connection.execute(_PERSISTED, asked)
        return RecordedPins(
            placed, frozenset((owner, kind, part, CpuSet.parse(mask)) for owner, kind, part, mask in found)
        )
