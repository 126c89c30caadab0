"""Add the facts about guests that are known from events alone."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """No fact is known yet."""
    op.create_table(
        "told",
        sa.Column("guest", sa.String(36), primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("nova", sa.Text, nullable=False),
        sa.Column("leaving_until", sa.String(32)),
    )
    op.create_index("told_of_host", "told", ["host"])


def downgrade() -> None:
    """The facts are lost; later events bring them again."""
    op.drop_table("told")
