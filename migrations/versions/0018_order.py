"""Order placements by runs, not by time, and add the boot of the host in which a run began."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_LAST_RUN = """
UPDATE placements SET run_seq = COALESCE((
    SELECT MAX(runs.seq) FROM runs
    WHERE runs.host = placements.host AND runs.kind = 'apply' AND runs.started_at <= placements.stored_at
), 0)
"""


def upgrade() -> None:
    """The boots of earlier runs are not known. A stored placement takes the runs into account that began before it."""
    op.add_column("runs", sa.Column("boot", sa.String(36), nullable=False, server_default=""))
    op.add_column("placements", sa.Column("run_seq", sa.Integer, nullable=False, server_default="0"))
    op.execute(sa.text(_LAST_RUN))


def downgrade() -> None:
    """Earlier versions order placements by the time of their storage."""
    op.drop_column("placements", "run_seq")
    op.drop_column("runs", "boot")
