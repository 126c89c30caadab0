"""Add the policies and the recorded placements of hosts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """No host has a policy yet."""
    op.create_table(
        "policies",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("set_at", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "standings",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("stored_at", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """The policies and placements are lost; threads keep their affinities."""
    op.drop_table("standings")
    op.drop_table("policies")
