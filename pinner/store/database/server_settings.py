"""Settings of a database server that no connection can change, and without which rows cannot be stored."""

from sqlalchemy import Connection, text

from pinner.model.errors import StoreUnavailable
from pinner.store.database.engine import MARIADB, where

MIN_PACKET = 4 * 2**20
"""Bytes of one statement: a text of 1 MiB can be twice as long in a statement, and a snapshot is packed."""

_ENCODINGS = ("UTF8", "SQL_ASCII")
"""SQL_ASCII stores the bytes that pinner sends, which are UTF-8."""


def require_settings(connection: Connection) -> None:
    """Raises StoreUnavailable where the server cannot store what pinner writes."""
    if connection.dialect.name == "postgresql":
        encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding not in _ENCODINGS:
            why = f"its encoding is {encoding}; pinner needs CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            raise StoreUnavailable(where(connection.engine), why)
    elif connection.dialect.name in MARIADB:
        packet = connection.execute(text("SELECT @@max_allowed_packet")).scalar_one()
        if packet < MIN_PACKET:
            why = f"max_allowed_packet of the server is {packet}; pinner needs {MIN_PACKET} or more"
            raise StoreUnavailable(where(connection.engine), why)
