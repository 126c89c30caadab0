"""The tables. ``seq`` is the order of insertion, of lists and pages: it needs no clock. The agent's journal uses only
``runs``, ``entries`` and ``agent_chain``. A value whose parts are never searched is the codec's JSON text; a snapshot
and a plan are packed (zlib)."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
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
    text,
    type_coerce,
)
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT
from sqlalchemy.types import TypeDecorator

from pinner.codec import utc_text


class UtcText(TypeDecorator[datetime]):
    """Aware datetimes as codec.utc_text."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else utc_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else datetime.fromisoformat(value)


def is_before(column: ColumnElement[Any], moment: datetime) -> ColumnElement[bool]:
    return type_coerce(column, String) < utc_text(moment)


LONG_TEXT = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
"""MariaDB's TEXT and BLOB end at 64 KiB."""

LONG_BYTES = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")

metadata = MetaData()

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("taken_at", UtcText, nullable=False),
    Column("packed", LONG_BYTES, nullable=False, server_default=""),
    Index("snapshots_taken_at", "taken_at"),
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
    Column("blocked", LONG_TEXT, nullable=False),
    Column("snapshot", String(64), ForeignKey("snapshots.id"), nullable=False),
    Column("packed", LONG_BYTES, nullable=False, server_default=""),
    Index("plans_of_host", "host", "seq"),
    Index("plans_of_snapshot", "snapshot"),
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
    Column("actor", LONG_TEXT, nullable=False),
    Column("origin", LONG_TEXT, nullable=False),
    Column("state", String(32), nullable=False),
    Column("started_at", UtcText, nullable=False),
    Column("ended_at", UtcText),
    Column("persist", Boolean, nullable=False),
    Column("undoes", String(64), nullable=False),
    Column("error", LONG_TEXT, nullable=False),
    Column("migrate_memory", Boolean, nullable=False, server_default=false()),
    Column("recovered", LONG_TEXT, nullable=False, server_default=""),
    Column("all_or_nothing", Boolean, nullable=False, server_default=false()),
    Column("peer", LONG_TEXT, nullable=False, server_default=""),
    Column("boot", String(36), nullable=False, server_default=""),
    Column("watch_seconds", Integer, nullable=False, server_default="0"),
    Column("undo_if_worse", Boolean, nullable=False, server_default=false()),
    Index("runs_of_host", "host", "seq"),
    Index("runs_in_state", "state"),
    Index("runs_of_host_in_state", "host", "kind", "state", "seq"),
    Index("runs_of_host_by_state", "host", "state", "seq"),
    Index("runs_of_plan", "plan"),
    sqlite_autoincrement=True,
)

entries = Table(
    "entries",
    metadata,
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("change", LONG_TEXT, nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", UtcText, nullable=False),
    Column("error", LONG_TEXT, nullable=False),
    Column("found", LONG_TEXT, nullable=False),
    Column("definition", LONG_TEXT, nullable=False),
    Column("memory", LONG_TEXT, nullable=False, server_default="[]"),
    Column("lineage", LONG_TEXT, nullable=False, server_default="null"),
    Column("inheritors", LONG_TEXT, nullable=False, server_default="[]"),
    Column("former", LONG_TEXT, nullable=False, server_default="[]"),
    Column("kind", String(16), nullable=False, server_default=""),
    Column("owner", String(64), nullable=False, server_default=""),
    Column("name", LONG_TEXT, nullable=False, server_default=""),
    Column("mask", LONG_TEXT, nullable=False, server_default=""),
    Index("entries_of_owner", "owner"),
)
"""The columns from ``kind`` on repeat parts of a change of affinity for the indices; else, and in an ended rollback of
all runs, they are empty. The owner is a guest's UUID or a process id, ``mask`` the new mask."""

IN_FORCE = "state IN ('intent', 'done', 'stuck')"

MASKS_IN_FORCE = f"mask != '' AND {IN_FORCE}"
PROCESSES_IN_FORCE = f"kind = 'process' AND {IN_FORCE}"

# For the agent's journal, which is always SQLite. A mask can be too long for an index of the others.
for _name, _column, _condition in (
    ("masks_in_force", entries.c.mask, MASKS_IN_FORCE),
    ("masks_of_processes", entries.c.mask, PROCESSES_IN_FORCE),
    ("names_of_processes", entries.c.name, PROCESSES_IN_FORCE),
):
    Index(_name, _column, sqlite_where=text(_condition)).ddl_if(dialect="sqlite")

outcomes = Table(
    "outcomes",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("watch", LONG_TEXT, nullable=False, server_default=""),
    Column("watching", Boolean, nullable=False, server_default=false()),
    Column("observed", LONG_TEXT, nullable=False, server_default=""),
    Index("outcomes_watching", "watching"),
)
"""What was observed of a run after its end; empty where it is not stored yet. ``watching``: the stored watch goes on.
Only in the central database."""

probes = Table(
    "probes",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("state", String(32), nullable=False),
    Column("started_at", UtcText, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
    Index("probes_in_state", "state"),
)

policies = Table(
    "policies",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("set_at", UtcText, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
    Column("setback", LONG_TEXT, nullable=False, server_default=""),
)

placements = Table(
    "placements",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("stored_at", UtcText, nullable=False),
    Column("run_seq", Integer, nullable=False, server_default="0"),
    Column("body", LONG_TEXT, nullable=False),
)
"""``run_seq``: ``runs.seq`` of the last run that the placement takes into account."""

backoffs = Table(
    "backoffs",
    metadata,
    Column("host", String(255), primary_key=True),
    Column("stored_at", UtcText, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
)

guest_hints = Table(
    "guest_hints",
    metadata,
    Column("guest", String(36), primary_key=True),
    Column("host", String(255), primary_key=True),
    Column("at", UtcText, nullable=False),
    Column("nova", LONG_TEXT, nullable=False),
    Column("leaving_until", UtcText),
    Column("event_order", LONG_TEXT, nullable=False, server_default=""),
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
    Column("body", LONG_BYTES, nullable=False),
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
    Column("created_by", LONG_TEXT, nullable=False),
    Column("expires_at", UtcText),
    Column("revoked_at", UtcText),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", UtcText, nullable=False),
    Column("actor", LONG_TEXT, nullable=False),
    Column("origin", LONG_TEXT, nullable=False),
    Column("action", String(64), nullable=False),
    Column("host", String(255), nullable=False),
    Column("subject", LONG_TEXT, nullable=False),
    Column("before", LONG_TEXT, nullable=False),
    Column("after", LONG_TEXT, nullable=False),
    Column("result", LONG_TEXT, nullable=False),
    Column("request_id", LONG_TEXT, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("audit_of_host", "host", "seq"),
    Index("audit_of_actor", "actor", "seq", mysql_length={"actor": 191}, mariadb_length={"actor": 191}),
    Index("audit_at", "at"),
)

audit_chain = Table(
    "audit_chain",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("purged_seq", Integer, nullable=False),
    Column("purged_hash", String(64), nullable=False),
)
"""One row: the last record, and the last one exported and purged (0: none). A write transaction locks it first; only
records up to ``purged_seq`` can be deleted."""

agent_chain = Table(
    "agent_chain",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", String(32), nullable=False),
    Column("run", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("target", LONG_TEXT, nullable=False),
    Column("before", LONG_TEXT, nullable=False),
    Column("after", LONG_TEXT, nullable=False),
    Column("result", LONG_TEXT, nullable=False),
    Column("actor", LONG_TEXT, nullable=False),
    Column("peer", LONG_TEXT, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("agent_chain_of_action", "action", "seq"),
)

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
