"""What events told of guests."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Nothing was told yet."""
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
    """It is lost; the next events tell it again."""
    op.drop_table("told")
