"""Policies of hosts, and the placements that stand there."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """No host has a policy."""
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
    """The policies are lost; what they placed stays where it is."""
    op.drop_table("standings")
    op.drop_table("policies")
