"""Pages of lists, in the order of insertion, newest first."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table, select

from pinner.model.errors import Invalid
from pinner.model.page import MAX_LIMIT, Page

T = TypeVar("T")

_NUMBER = re.compile("[0-9]{1,18}")
"""Numbers that fit into an integer of any database (64 bits)."""


def page(
    connection: Connection,
    query: Select[Any],
    table: Table,
    limit: int,
    marker: str,
    read: Callable[[Row[Any]], T],
    key: str = "id",
) -> Page[T]:
    """The next ``limit`` rows of the query, older than the row whose column ``key`` equals ``marker``.

    An empty marker starts at the newest row. Raises Invalid for a limit outside 1 to MAX_LIMIT, and for a marker that
    no row has.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid("limit", limit, f"a number from 1 to {MAX_LIMIT}")
    if marker:
        query = query.where(table.c.seq < _position(connection, table, key, marker))
    rows = connection.execute(query.order_by(table.c.seq.desc()).limit(limit + 1)).all()
    items = rows[:limit]
    following = str(getattr(items[-1], key)) if len(rows) > limit else ""
    return Page(tuple(read(row) for row in items), following)


def _position(connection: Connection, table: Table, key: str, marker: str) -> int:
    column = table.c[key]
    value: int | str | None = marker
    if column.type.python_type is int:
        value = int(marker) if _NUMBER.fullmatch(marker) else None
    found: int | None = connection.execute(select(table.c.seq).where(column == value)).scalar()
    if found is None:
        raise Invalid("marker", marker, "the `next` of the previous page")
    return found
