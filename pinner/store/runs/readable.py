"""Entries of which one may be damaged: the others are read all the same."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, select
from sqlalchemy.exc import DBAPIError

from pinner.model.cpuset import CpuSet
from pinner.model.run.journal import Damaged
from pinner.store.database import tables
from pinner.store.database.damage import is_damage, repair

BATCH = 1000

T = TypeVar("T")
_ENTRIES = tables.entries.c
_FACTS = [_ENTRIES[name] for name in ("kind", "owner", "name", "mask")]


def readable(connection: Connection, query: Select[Any], read: Callable[[Row[Any]], T]) -> Iterator[T | Damaged]:
    """The entries of a query, which has an order, read by ``read``; for each damaged one, what else is stored of it."""
    count = 0
    try:
        # Closed at once: a server keeps a cursor for it.
        with connection.execute(query.execution_options(yield_per=BATCH)) as result:
            for row in result:
                value = read(row)
                count += 1
                yield value
        return
    except (ValueError, DBAPIError) as error:
        if not is_damage(error):
            raise
    keys = query.with_only_columns(_ENTRIES.run, _ENTRIES.seq, maintain_column_froms=True).offset(count)
    for run, seq in connection.execute(keys).all():
        yield _read_one(connection, query.filter(_ENTRIES.run == run, _ENTRIES.seq == seq), read, run, seq)


def _read_one(
    connection: Connection, query: Select[Any], read: Callable[[Row[Any]], T], run: str, seq: int
) -> T | Damaged:
    try:
        return read(connection.execute(query).one())
    except (ValueError, DBAPIError) as error:
        if not is_damage(error):
            raise
        return _damaged(connection, run, seq, error)


def _damaged(connection: Connection, run: str, seq: int, error: Exception) -> Damaged:
    text = " ".join(str(getattr(error, "orig", None) or error).split())[:200]
    why = f"database {connection.engine.url.database}: a stored value is damaged: {text}"
    why += repair(connection.engine, None)
    boot = connection.execute(select(tables.runs.c.boot).filter_by(id=run)).scalar() or ""
    try:
        kind, owner, name, mask = connection.execute(select(*_FACTS).filter_by(run=run, seq=seq)).one()
        return Damaged(run, seq, why, kind, owner, name, CpuSet.parse(mask) if mask else CpuSet(), boot)
    except (ValueError, DBAPIError) as worse:
        if not is_damage(worse):
            raise
        return Damaged(run, seq, why, boot=boot)
