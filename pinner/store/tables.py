"""The tables. ``seq`` is the order of insertion; lists and pages are ordered by it, because it needs no clock.

The central database and the agent's journal have the same schema, and so the same migrations; a journal uses only
``runs``, ``entries`` and ``agent_chain``. A value whose parts are never searched is stored whole, as JSON text that the
codec writes.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
)
from sqlalchemy.types import TypeDecorator


class UtcText(TypeDecorator[datetime]):
    """A column of aware datetimes, stored as ISO 8601 text in UTC with microseconds.

    All texts have the same width, so their order is the order of time on every database.
    """

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The text to store for a datetime; see ``utc_text``."""
        return None if value is None else utc_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The datetime of a stored text."""
        return None if value is None else datetime.fromisoformat(value)


def utc_text(moment: datetime) -> str:
    """An aware datetime as text, such as ``2026-11-21T10:11:12.123456+00:00``."""
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
    Column("peer", Text, nullable=False, server_default=""),
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
    "placements",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("stored_at", UtcText, nullable=False),
    Column("body", Text, nullable=False),
)

guest_hints = Table(
    "guest_hints",
    metadata,
    Column("guest", String(36), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("at", UtcText, nullable=False),
    Column("nova", Text, nullable=False),
    Column("leaving_until", UtcText),
    Index("guest_hints_of_host", "host"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("actor", String(255), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("at", UtcText, nullable=False),
    Column("status", Integer, nullable=False),
    Column("location", String(255), nullable=False),
    Column("body", LargeBinary(2**24 - 1), nullable=False),
    Index("idempotency_keys_at", "at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("created_at", UtcText, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", UtcText),
    Column("revoked_at", UtcText),
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

agent_chain = Table(
    "agent_chain",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", String(32), nullable=False),
    Column("run", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("target", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("peer", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("agent_chain_of_action", "action", "seq"),
)
"""The audit trail of the agent; only a journal has records in it."""

agent_heads = Table(
    "agent_heads",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("hash", String(64), primary_key=True),
    Column("centre_seq", Integer, nullable=False),
    Column("centre_hash", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("key", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
)
"""The signed heads that agents reported; only the central database has rows in it."""
