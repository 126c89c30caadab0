"""Keep the hints on a guest for each host, and the order of the events that they are from."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0020"
down_revision = "0019"

_LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_COLUMNS = "guest, host, at, nova, leaving_until"
_LATEST = """
NOT EXISTS (
    SELECT 1 FROM guest_hints AS later WHERE later.guest = guest_hints.guest
    AND (later.at > guest_hints.at OR (later.at = guest_hints.at AND later.host > guest_hints.host))
)
"""


def upgrade() -> None:
    """The order of events before the upgrade is not known."""
    _replace("1 = 1", is_key=True)
    op.add_column("guest_hints", sa.Column("event_order", _LONG_TEXT, nullable=False, server_default=""))


def downgrade() -> None:
    """Earlier versions have one hint on a guest: the latest one stays."""
    _replace(_LATEST, is_key=False)


def _replace(kept: str, *, is_key: bool) -> None:
    """Copy the rows that meet a condition to a table with another key. A key cannot be changed on SQLite."""
    op.create_table(
        "guest_hints_copy",
        sa.Column("guest", sa.String(36), primary_key=True),
        sa.Column("host", sa.String(255), primary_key=is_key, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("nova", _LONG_TEXT, nullable=False),
        sa.Column("leaving_until", sa.String(32)),
    )
    op.execute(f"INSERT INTO guest_hints_copy ({_COLUMNS}) SELECT {_COLUMNS} FROM guest_hints WHERE {kept}")  # noqa: S608
    op.drop_table("guest_hints")
    op.rename_table("guest_hints_copy", "guest_hints")
    op.create_index("guest_hints_of_host", "guest_hints", ["host"])
