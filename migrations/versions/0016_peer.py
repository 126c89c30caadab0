"""Add the process that called the agent for a run, as the kernel names it."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0014"


def upgrade() -> None:
    """The callers of earlier runs are not known."""
    op.add_column("runs", sa.Column("peer", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """The runs keep the names that their callers claimed."""
    op.drop_column("runs", "peer")
