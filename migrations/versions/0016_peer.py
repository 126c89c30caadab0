"""Add the process that called the agent for a run, as the kernel names it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0016"
down_revision = "0014"


_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """The callers of earlier runs are not known."""
    op.add_column("runs", sa.Column("peer", _LONG_TEXT, nullable=False, server_default=""))


def downgrade() -> None:
    """The runs keep the names that their callers claimed."""
    op.drop_column("runs", "peer")
