"""Rows of the tables that have at most one row for each host."""

from typing import Any

from sqlalchemy import Connection, Table, insert, update


def put_host_row(connection: Connection, table: Table, host: str, values: dict[str, Any]) -> None:
    """Insert the host's row, or replace the values of the row that exists."""
    if not connection.execute(update(table).filter_by(host=host).values(values)).rowcount:
        connection.execute(insert(table).values(host=host, **values))
