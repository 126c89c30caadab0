"""Store the answers of requests that carry an Idempotency-Key."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGBLOB

revision = "0014"
down_revision = "0013"


_LONG_BYTES = sa.LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
_COLLATION = "utf8mb4_nopad_bin"


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
        sa.Column("body", _LONG_BYTES, nullable=False),
        mariadb_charset="utf8mb4",
        mariadb_collate=_COLLATION,
        mysql_charset="utf8mb4",
        mysql_collate=_COLLATION,
    )
    op.create_index("idempotency_keys_at", "idempotency_keys", ["at"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("idempotency_keys")
