"""Revision 1.0: the tables, the row of the audit trail, and the triggers that keep both trails append-only.

A revision describes the schema of its own release. So this one repeats the tables of ``pinner.store.database.tables``
and does not import them. Before the first release, a change of a table there is repeated here; a test compares the two.
"""

from typing import Any

from alembic import op
from sqlalchemy import (
    Boolean,
    Column,
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
)
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT
from sqlalchemy.schema import SchemaItem

revision = "1.0"
down_revision = None

MOMENT = String(32)
LONG_TEXT = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
LONG_BYTES = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
BYTES: dict[str, Any] = {
    f"{name}_{option}": value
    for name in ("mariadb", "mysql")
    for option, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_nopad_bin"))
}
"""MariaDB compares texts by their bytes, as the others do, whatever the database's default is."""

metadata = MetaData()


def _table(name: str, *parts: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *parts, **BYTES, **options)


_table(
    "snapshots",
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("taken_at", MOMENT, nullable=False),
    Column("packed", LONG_BYTES, nullable=False, server_default=""),
    Index("snapshots_taken_at", "taken_at"),
)

_table(
    "plans",
    Column("seq", Integer, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("host", String(255), nullable=False),
    Column("strategy", String(255), nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("unplaced", Integer, nullable=False),
    Column("blocked", LONG_TEXT, nullable=False),
    Column("snapshot", String(64), ForeignKey("snapshots.id"), nullable=False),
    Column("packed", LONG_BYTES, nullable=False, server_default=""),
    Index("plans_of_host", "host", "seq"),
    Index("plans_of_snapshot", "snapshot"),
    sqlite_autoincrement=True,
)

_table(
    "runs",
    Column("seq", Integer, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("plan", String(64), nullable=False),
    Column("actor", LONG_TEXT, nullable=False),
    Column("origin", LONG_TEXT, nullable=False),
    Column("state", String(32), nullable=False),
    Column("started_at", MOMENT, nullable=False),
    Column("ended_at", MOMENT),
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

entries = _table(
    "entries",
    Column("run", String(64), ForeignKey("runs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("change", LONG_TEXT, nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", MOMENT, nullable=False),
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

_table(
    "outcomes",
    Column("run", String(64), primary_key=True),
    Column("watch", LONG_TEXT, nullable=False, server_default=""),
    Column("watching", Boolean, nullable=False, server_default=false()),
    Column("observed", LONG_TEXT, nullable=False, server_default=""),
    Index("outcomes_watching", "watching"),
)

_table(
    "probes",
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("state", String(32), nullable=False),
    Column("started_at", MOMENT, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
    Index("probes_in_state", "state"),
)

_table(
    "policies",
    Column("host", String(255), primary_key=True),
    Column("set_at", MOMENT, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
    Column("setback", LONG_TEXT, nullable=False, server_default=""),
)

_table(
    "placements",
    Column("host", String(255), primary_key=True),
    Column("stored_at", MOMENT, nullable=False),
    Column("run_seq", Integer, nullable=False, server_default="0"),
    Column("body", LONG_TEXT, nullable=False),
)

_table(
    "backoffs",
    Column("host", String(255), primary_key=True),
    Column("stored_at", MOMENT, nullable=False),
    Column("body", LONG_TEXT, nullable=False),
)

_table(
    "guest_hints",
    Column("guest", String(36), primary_key=True),
    Column("host", String(255), primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("nova", LONG_TEXT, nullable=False),
    Column("leaving_until", MOMENT),
    Column("event_order", LONG_TEXT, nullable=False, server_default=""),
    Index("guest_hints_of_host", "host"),
)

_table(
    "idempotency_keys",
    Column("actor", String(255), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("at", MOMENT, nullable=False),
    Column("status", Integer, nullable=False),
    Column("location", String(255), nullable=False),
    Column("body", LONG_BYTES, nullable=False),
    Index("idempotency_keys_at", "at"),
)

_table(
    "tokens",
    Column("id", String(16), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("created_by", LONG_TEXT, nullable=False),
    Column("expires_at", MOMENT),
    Column("revoked_at", MOMENT),
)

_table(
    "audit",
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", MOMENT, nullable=False),
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

_table(
    "audit_chain",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("purged_seq", Integer, nullable=False),
    Column("purged_hash", String(64), nullable=False),
)

_table(
    "agent_chain",
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

_table(
    "agent_heads",
    Column("host", String(255), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("hash", String(64), primary_key=True),
    Column("centre_seq", Integer, nullable=False),
    Column("centre_hash", String(64), nullable=False),
    Column("at", String(32), nullable=False),
    Column("key", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
)


REFUSALS = {"audit": "the audit trail is append-only", "agent_chain": "the chain is append-only"}
CAN_BE_DELETED = {
    "audit": "OLD.seq <= coalesce((SELECT purged_seq FROM audit_chain), 0)",
    "agent_chain": "EXISTS (SELECT 1 FROM agent_chain WHERE seq > OLD.seq AND action = 'chain.cut' "
    "AND CASE WHEN action = 'chain.cut' THEN CAST(target AS {integer}) END >= OLD.seq)",
}
"""The records that can be deleted: those that were exported, and those that a record chain.cut covers."""


def upgrade() -> None:
    """Create the tables, the row and the triggers."""
    metadata.create_all(op.get_bind(), checkfirst=False)
    row = {"id": 1, "seq": 0, "hash": "", "purged_seq": 0, "purged_hash": ""}
    op.bulk_insert(metadata.tables["audit_chain"], [row])
    guard = {"sqlite": _guard_sqlite, "postgresql": _guard_postgresql}.get(op.get_bind().dialect.name, _guard_mariadb)
    for table in REFUSALS:
        guard(table)


def _guard_sqlite(table: str) -> None:
    """INSERT OR REPLACE deletes a row without a delete trigger (https://www.sqlite.org/lang_conflict.html)."""
    abort = f"BEGIN SELECT RAISE(ABORT, '{REFUSALS[table]}'); END"
    allowed = CAN_BE_DELETED[table].format(integer="INTEGER")
    stored = f"EXISTS (SELECT 1 FROM {table} WHERE seq = NEW.seq)"  # noqa: S608
    _trigger(table, "update", f"BEFORE UPDATE ON {table} {abort}")
    _trigger(table, "delete", f"BEFORE DELETE ON {table} WHEN NOT ({allowed}) {abort}")
    _trigger(table, "replace", f"BEFORE INSERT ON {table} WHEN {stored} {abort}")


def _guard_postgresql(table: str) -> None:
    allow = f"IF {CAN_BE_DELETED[table].format(integer='BIGINT')} THEN RETURN OLD; END IF;"
    op.execute(
        f"CREATE FUNCTION {table}_refuses_change() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF TG_OP = 'DELETE' THEN {allow} END IF; "
        f"RAISE EXCEPTION '{REFUSALS[table]}' USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    refuse = f"EXECUTE FUNCTION {table}_refuses_change()"
    _trigger(table, "change", f"BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW {refuse}")
    _trigger(table, "truncate", f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {refuse}")


def _guard_mariadb(table: str) -> None:
    refuse = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{REFUSALS[table]}'"
    allowed = CAN_BE_DELETED[table].format(integer="SIGNED")
    _trigger(table, "update", f"BEFORE UPDATE ON {table} FOR EACH ROW {refuse}")
    _trigger(table, "delete", f"BEFORE DELETE ON {table} FOR EACH ROW IF NOT ({allowed}) THEN {refuse}; END IF")


def _trigger(table: str, name: str, body: str) -> None:
    op.execute(f"CREATE TRIGGER {table}_refuses_{name} {body}")
