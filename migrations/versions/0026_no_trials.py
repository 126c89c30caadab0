"""Drop the kinds of change that policies have probed: a policy probes nothing.

A stored policy, probe or setback may still have the fields of that time, which nobody reads.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0026"
down_revision = "0025"

_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """The verdicts are lost; the audit trail still has those of the probes."""
    op.drop_table("trials")


def downgrade() -> None:
    """No policy has probed anything."""
    op.create_table(
        "trials",
        sa.Column("host", sa.String(255), primary_key=True),
        sa.Column("request", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("body", _LONG_TEXT, nullable=False),
    )
