"""The distinct values of an indexed column: one search in the index for each value (a loose index scan).

SELECT DISTINCT would read the whole index. The recursive query is the one of the SQLite manual
(https://www.sqlite.org/lang_with.html, recursive common table expressions).
"""

from typing import Any

from sqlalchemy import Column, Select, func, select, text


def distinct_values(column: Column[Any], condition: str) -> Select[tuple[Any]]:
    """The query of the distinct values of a column of text, in the rows that meet a condition.

    An index on the column must have the same condition (CREATE INDEX ... WHERE). The condition is the index's own text,
    because SQLite does not compare a bound parameter with it.
    """
    smallest = select(func.min(column).label("value")).where(text(condition))
    found = smallest.where(column >= "").cte("found", recursive=True)
    following = smallest.where(column > found.c.value).scalar_subquery()
    found = found.union_all(select(following).where(found.c.value.is_not(None)))
    return select(found.c.value).where(found.c.value.is_not(None))
