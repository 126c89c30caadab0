import re
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table, select

from pinner.model.errors import Invalid
from pinner.model.page import MAX_LIMIT, Page, PageRequest

T = TypeVar("T")

EXPECTED = "the `next` of the previous page"
_NUMBER = re.compile("[0-9]{1,9}")


def page(
    connection: Connection,
    query: Select[Any],
    table: Table,
    part: PageRequest,
    read: Callable[[Row[Any]], T],
    key: str = "id",
) -> Page[T]:
    """The marker is a value of the column ``key``. The newest row is first, with ``asc`` the oldest. Raises Invalid."""
    if not 1 <= part.limit <= MAX_LIMIT:
        raise Invalid("limit", part.limit, f"a number from 1 to {MAX_LIMIT}")
    downwards = part.direction == "desc"
    if part.marker:
        position = _position(connection, table, key, part.marker)
        query = query.where(table.c.seq < position if downwards else table.c.seq > position)
    order = table.c.seq.desc() if downwards else table.c.seq.asc()
    rows = connection.execute(query.order_by(order).limit(part.limit + 1)).all()
    items = rows[: part.limit]
    following = str(getattr(items[-1], key)) if len(rows) > part.limit else ""
    return Page(tuple(read(row) for row in items), following)


def _position(connection: Connection, table: Table, key: str, marker: str) -> int:
    column = table.c[key]
    value: int | str | None = marker
    if column.type.python_type is int:
        value = int(marker) if _NUMBER.fullmatch(marker) else None
    if value is None or "\0" in marker:  # no row can have it
        raise Invalid("marker", marker, EXPECTED)
    position: int | None = connection.execute(select(table.c.seq).where(column == value)).scalar()
    if position is None:
        raise Invalid("marker", marker, EXPECTED)
    return position
