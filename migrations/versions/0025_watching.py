"""Store which watches of runs go on, although a state of them is stored."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Only the ends of watches are stored so far."""
    op.add_column("outcomes", sa.Column("watching", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("outcomes_watching", "outcomes", ["watching"])


def downgrade() -> None:
    """A watch that goes on looks like one that has ended."""
    op.drop_index("outcomes_watching", "outcomes")
    op.drop_column("outcomes", "watching")
