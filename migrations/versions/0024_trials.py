"""Store which kinds of change the policies have probed, with the verdicts."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0024"
down_revision = "0023"

_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """No policy has probed anything."""
    op.create_table(
        "trials",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("request", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("body", _LONG_TEXT, nullable=False),
    )


def downgrade() -> None:
    """The verdicts are lost; the audit trail still has those of the probes."""
    op.drop_table("trials")
