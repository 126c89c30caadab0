"""Add the option of a run to move guests' memory, and the memory that an entry moved."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Earlier runs moved no memory."""
    op.add_column("runs", sa.Column("migrate_memory", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("entries", sa.Column("memory", sa.Text, nullable=False, server_default="[]"))


def downgrade() -> None:
    """Entries of moved memory stay, but an earlier version cannot read them."""
    op.drop_column("entries", "memory")
    op.drop_column("runs", "migrate_memory")
