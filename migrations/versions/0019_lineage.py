"""Add the facts by which an undo finds the processes that inherited a mask, and what a rollback of all runs needs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0019"
down_revision = "0018"


_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_ADDED = {"lineage": "null", "heirs": "[]", "former": "[]"}


def upgrade() -> None:
    """The lineage of earlier changes is not known."""
    for name, empty in _ADDED.items():
        op.add_column("entries", sa.Column(name, _LONG_TEXT, nullable=False, server_default=empty))


def downgrade() -> None:
    """An undo no longer finds the processes that inherited a mask."""
    for name in _ADDED:
        op.drop_column("entries", name)
