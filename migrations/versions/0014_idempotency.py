"""Store the answers of requests that carry an Idempotency-Key."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0010"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "idempotency_keys",
        sa.Column("actor", sa.String(255), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("location", sa.String(255), nullable=False),
        sa.Column("body", sa.LargeBinary(2**24 - 1), nullable=False),
    )
    op.create_index("idempotency_keys_at", "idempotency_keys", ["at"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("idempotency_keys")
