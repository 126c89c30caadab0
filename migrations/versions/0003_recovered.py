"""Add the result of the recovery of a run whose process died."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """No earlier run was recovered."""
    op.add_column("runs", sa.Column("recovered", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """The runs keep their states."""
    op.drop_column("runs", "recovered")
