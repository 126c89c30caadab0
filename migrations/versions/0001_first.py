"""The first schema: snapshots, plans, runs with their entries, and the audit trail.

A migration describes the schema of its own time, so it repeats the tables instead of importing them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID = sa.String(64)
NAME = sa.String(255)
MOMENT = sa.String(32)


def upgrade() -> None:
    """Create every table."""
    _snapshots_and_plans()
    _runs_and_entries()
    _audit()


def downgrade() -> None:
    """Drop every table; the audit trail is lost with them."""
    for table in ("audit", "entries", "runs", "plans", "snapshots"):
        op.drop_table(table)


def _snapshots_and_plans() -> None:
    op.create_table(
        "snapshots",
        sa.Column("id", ID, primary_key=True),
        sa.Column("host", NAME, nullable=False),
        sa.Column("taken_at", MOMENT, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "plans",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", ID, nullable=False, unique=True),
        sa.Column("host", NAME, nullable=False),
        sa.Column("strategy", NAME, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("unplaced", sa.Integer, nullable=False),
        sa.Column("blocked", sa.Text, nullable=False),
        sa.Column("snapshot", ID, sa.ForeignKey("snapshots.id"), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("plans_of_host", "plans", ["host", "seq"])


def _runs_and_entries() -> None:
    op.create_table(
        "runs",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", ID, nullable=False, unique=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("plan", ID, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("persist", sa.Boolean, nullable=False),
        sa.Column("undoes", ID, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("runs_of_host", "runs", ["host", "seq"])
    op.create_index("runs_in_state", "runs", ["state"])
    op.create_table(
        "entries",
        sa.Column("run", ID, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("change", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("previous", ID, nullable=False),
        sa.Column("hash", ID, nullable=False),
    )
    op.create_index("audit_of_host", "audit", ["host", "seq"])
    op.create_index("audit_at", "audit", ["at"])
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_refuses_{verb.lower()} BEFORE {verb} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
            )
