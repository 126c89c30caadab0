"""Pages of lists, in the order of insertion."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table, select

from pinner.model.errors import Invalid
from pinner.model.page import MAX_LIMIT, Page, SortDirection

T = TypeVar("T")

EXPECTED = "the `next` of the previous page"
_NUMBER = re.compile("[0-9]{1,9}")
"""Numbers that fit into an integer of any database (32 bits)."""


def page(
    connection: Connection,
    query: Select[Any],
    table: Table,
    limit: int,
    marker: str,
    read: Callable[[Row[Any]], T],
    key: str = "id",
    direction: SortDirection = "desc",
) -> Page[T]:
    """The next ``limit`` rows of the query, after the row whose column ``key`` equals ``marker``.

    An empty marker starts at the first row: the newest, or with ``asc`` the oldest. Raises Invalid for a limit outside
    1 to MAX_LIMIT, and for a marker that no row has.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid("limit", limit, f"a number from 1 to {MAX_LIMIT}")
    if marker:
        position = _position(connection, table, key, marker)
        query = query.where(table.c.seq < position if direction == "desc" else table.c.seq > position)
    order = table.c.seq.desc() if direction == "desc" else table.c.seq.asc()
    rows = connection.execute(query.order_by(order).limit(limit + 1)).all()
    items = rows[:limit]
    following = str(getattr(items[-1], key)) if len(rows) > limit else ""
    return Page(tuple(read(row) for row in items), following)


def _position(connection: Connection, table: Table, key: str, marker: str) -> int:
    column = table.c[key]
    value: int | str | None = marker
    if column.type.python_type is int:
        value = int(marker) if _NUMBER.fullmatch(marker) else None
    if value is None or "\0" in marker:  # no row can have it
        raise Invalid("marker", marker, EXPECTED)
    found: int | None = connection.execute(select(table.c.seq).where(column == value)).scalar()
    if found is None:
        raise Invalid("marker", marker, EXPECTED)
    return found
