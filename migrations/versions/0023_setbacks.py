"""Store why pinner set the mode of a policy from enforce to propose."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0023"
down_revision = "0022"

_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Only people have set the modes so far."""
    op.add_column("policies", sa.Column("setback", _LONG_TEXT, nullable=False, server_default=""))


def downgrade() -> None:
    """The causes are lost; the audit trail still has them."""
    op.drop_column("policies", "setback")
