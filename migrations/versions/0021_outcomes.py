"""Store the outcomes of runs, and whether a run is watched."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0021"
down_revision = "0020"

_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """No earlier run was watched."""
    op.add_column("runs", sa.Column("watch_seconds", sa.Integer, nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("undo_if_worse", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "outcomes",
        sa.Column("run", sa.String(64), primary_key=True),
        sa.Column("watch", _LONG_TEXT, nullable=False, server_default=""),
        sa.Column("observed", _LONG_TEXT, nullable=False, server_default=""),
    )


def downgrade() -> None:
    """The outcomes are lost; the audit trail still has the end of each watch."""
    op.drop_table("outcomes")
    op.drop_column("runs", "undo_if_worse")
    op.drop_column("runs", "watch_seconds")
