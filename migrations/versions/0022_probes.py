"""Store the probes of plans."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0022"
down_revision = "0021"

_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """No probe was ever made."""
    op.create_table(
        "probes",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("body", _LONG_TEXT, nullable=False),
    )
    op.create_index("probes_in_state", "probes", ["state"])


def downgrade() -> None:
    """The probes are lost; the audit trail still has their begin and their end."""
    op.drop_table("probes")
