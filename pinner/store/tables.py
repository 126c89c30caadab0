"""The tables. ``seq`` is the order of insertion, by which lists run and pages are cut; it needs no clock.

The database at the centre and the agent's journal have the same schema, and so one path of migrations; a journal uses
``runs`` and ``entries`` only. Values that are never searched by their parts are kept whole, as the codec writes them.
"""

from datetime import UTC, datetime

from sqlalchemy import Boolean, Column, Dialect, ForeignKey, Index, Integer, MetaData, String, Table, Text, false
from sqlalchemy.types import TypeDecorator


class UtcText(TypeDecorator[datetime]):
    """An aware moment as ISO 8601 in UTC to the microsecond: of one width, so that text order is time order, and the
    same on every database."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """To the database; see ``utc_text``."""
        return None if value is None else utc_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """From the database."""
        return None if value is None else datetime.fromisoformat(value)


def utc_text(moment: datetime) -> str:
    """An aware moment as ``2026-11-21T10:11:12.123456+00:00``."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


metadata = MetaData()

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("taken_at", UtcText, nullable=False),
    Column("body", Text, nullable=False),
)

plans = Table(
    "plans",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("host", String(255), nullable=False),
    Column("strategy", String(255), nullable=False),
    Column("created_at", UtcText, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("unplaced", Integer, nullable=False),
    Column("blocked", Text, nullable=False),
    Column("snapshot", String(64), ForeignKey("snapshots.id"), nullable=False),
    Column("body", Text, nullable=False),
    Index("plans_of_host", "host", "seq"),
    sqlite_autoincrement=True,
)

runs = Table(
    "runs",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("plan", String(64), nullable=False),
    Column("actor", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("state", String(32), nullable=False),
    Column("started_at", UtcText, nullable=False),
    Column("ended_at", UtcText),
    Column("persist", Boolean, nullable=False),
    Column("undoes", String(64), nullable=False),
    Column("error", Text, nullable=False),
    Column("migrate_memory", Boolean, nullable=False, server_default=false()),
    Column("recovered", Text, nullable=False, server_default=""),
    Index("runs_of_host", "host", "seq"),
    Index("runs_in_state", "state"),
    sqlite_autoincrement=True,
)

entries = Table(
    "entries",
    metadata,
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("change", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", UtcText, nullable=False),
    Column("error", Text, nullable=False),
    Column("found", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("memory", Text, nullable=False, server_default="[]"),
)

policies = Table(
    "policies",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("set_at", UtcText, nullable=False),
    Column("body", Text, nullable=False),
)

placements = Table(
    "standings",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("stored_at", UtcText, nullable=False),
    Column("body", Text, nullable=False),
)

guest_hints = Table(
    "told",
    metadata,
    Column("guest", String(36), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("at", UtcText, nullable=False),
    Column("nova", Text, nullable=False),
    Column("leaving_until", UtcText),
    Index("told_of_host", "host"),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", UtcText, nullable=False),
    Column("actor", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("action", String(64), nullable=False),
    Column("host", String(255), nullable=False),
    Column("subject", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("audit_of_host", "host", "seq"),
    Index("audit_at", "at"),
)
