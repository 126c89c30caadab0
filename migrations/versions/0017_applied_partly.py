"""Add whether a run makes all of its changes or none, and the back-offs of each host."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0017"
down_revision = "0016"


_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_COLLATION = "utf8mb4_nopad_bin"


def upgrade() -> None:
    """Earlier runs that have not ended are finished group by group, too; no back-off is known."""
    op.add_column("runs", sa.Column("all_or_nothing", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "backoffs",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("stored_at", sa.String(32), nullable=False),
        sa.Column("body", _LONG_TEXT, nullable=False),
        mariadb_charset="utf8mb4",
        mariadb_collate=_COLLATION,
        mysql_charset="utf8mb4",
        mysql_collate=_COLLATION,
    )


def downgrade() -> None:
    """A run that is applied in part counts as applied: its entries say which changes are made."""
    op.execute("UPDATE runs SET state = 'applied' WHERE state = 'applied_partly'")
    op.drop_table("backoffs")
    op.drop_column("runs", "all_or_nothing")
