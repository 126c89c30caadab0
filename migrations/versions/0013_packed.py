"""Store snapshots and plans as compressed JSON (zlib) instead of text. Their ids stay."""

import zlib
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT

revision = "0013"
down_revision = "0012"

LONG_BYTES = sa.LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
TABLES = ("snapshots", "plans")


def upgrade() -> None:
    """Pack each row. SQLite's file does not shrink: new rows use the free space (or run VACUUM)."""
    for table in TABLES:
        op.add_column(table, sa.Column("packed", LONG_BYTES, nullable=False, server_default=""))
        _rewrite(table, "body", "packed", lambda text: zlib.compress(text.encode()))
        op.drop_column(table, "body")
    op.create_index("snapshots_taken_at", "snapshots", ["taken_at"])


def downgrade() -> None:
    """Unpack each row."""
    op.drop_index("snapshots_taken_at", "snapshots")
    for table in TABLES:
        op.add_column(table, sa.Column("body", LONG_TEXT, nullable=False, server_default=""))
        _rewrite(table, "packed", "body", lambda packed: zlib.decompress(packed).decode())
        op.drop_column(table, "packed")


def _rewrite(name: str, before: str, after: str, convert: Callable[[Any], Any]) -> None:
    """One row at a time: a snapshot may be large."""
    connection = op.get_bind()
    types: dict[str, Any] = {"body": sa.Text(), "packed": sa.LargeBinary()}
    columns = [sa.column("id", sa.String), sa.column(before, types[before]), sa.column(after, types[after])]
    table = sa.table(name, *columns)
    for key in connection.execute(sa.select(table.c.id)).scalars().all():
        value = connection.execute(sa.select(table.c[before]).where(table.c.id == key)).scalar_one()
        connection.execute(sa.update(table).where(table.c.id == key).values({after: convert(value)}))
