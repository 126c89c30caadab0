"""Let PostgreSQL and MariaDB store all that SQLite stores, and keep the end of the audit trail in a row of its own.

On MariaDB, texts get no limit of length, and all texts are compared by their bytes. The audit trail and the agent's
chain refuse changes on every database. Only records of the trail up to ``purged_seq`` can be deleted, those that were
exported, and only records of the chain that a record chain.cut covers.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

TEXTS = {
    "snapshots": ("body",),
    "plans": ("blocked", "body"),
    "runs": ("actor", "origin", "error", "recovered"),
    "entries": ("change", "error", "found", "definition", "memory"),
    "policies": ("body",),
    "placements": ("body",),
    "guest_hints": ("nova",),
    "audit": ("actor", "origin", "subject", "before", "after", "result", "request_id"),
    "tokens": ("created_by",),
    "agent_chain": ("target", "before", "after", "result", "actor", "peer"),
    "agent_heads": (),
}
DEFAULTS = {("runs", "recovered"): "", ("entries", "memory"): "[]"}
REFUSALS = {"audit": "the audit trail is append-only", "agent_chain": "the chain is append-only"}
CAN_BE_DELETED = {
    "audit": "OLD.seq <= coalesce((SELECT purged_seq FROM audit_chain), 0)",
    "agent_chain": "EXISTS (SELECT 1 FROM agent_chain WHERE seq > OLD.seq AND action = 'chain.cut' "
    "AND CASE WHEN action = 'chain.cut' THEN CAST(target AS {integer}) END >= OLD.seq)",
}


def upgrade() -> None:
    """Convert texts on MariaDB, and create the row and the triggers on every database."""
    database = op.get_bind().dialect.name
    if database in ("mariadb", "mysql"):
        _convert_texts()
    _create_chain()
    for table in REFUSALS:
        if database == "sqlite":
            _drop_triggers(table, "update", "delete")
            _guard_sqlite(table)
        elif database == "postgresql":
            _guard_postgresql(table)
        else:
            _guard_mariadb(table)


def downgrade() -> None:
    """Restore the triggers of SQLite. PostgreSQL and MariaDB had none. MariaDB's texts stay long."""
    database = op.get_bind().dialect.name
    # A purge that was killed is completed, so that the first record tells the next upgrade where the trail starts.
    purged = op.get_bind().execute(sa.text("SELECT purged_seq FROM audit_chain")).scalar() or 0
    op.get_bind().execute(sa.text("DELETE FROM audit WHERE seq <= :purged"), {"purged": purged})
    for table in REFUSALS:
        if database == "postgresql":
            op.execute(f"DROP FUNCTION {table}_refuses_change CASCADE")
        else:
            _drop_triggers(table, "update", "delete", *(["replace"] if database == "sqlite" else []))
    if database == "sqlite":
        _trigger("audit", "update", f"BEFORE UPDATE ON audit {_abort('audit')}")
        _trigger("audit", "delete", f"BEFORE DELETE ON audit {_abort('audit')}")
        _trigger("agent_chain", "update", f"BEFORE UPDATE ON agent_chain {_abort('agent_chain')}")
        _guard_deletes("agent_chain")
    op.drop_table("audit_chain")


def _convert_texts() -> None:
    # MariaDB does not convert a column of a foreign key.
    keys = [(table, key) for table in TEXTS for key in sa.inspect(op.get_bind()).get_foreign_keys(table)]
    for table, key in keys:
        op.execute(f"ALTER TABLE {table} DROP FOREIGN KEY {key['name']}")
    for table, columns in TEXTS.items():
        changes = ["CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"]
        for column in columns:
            default = f" DEFAULT '{DEFAULTS[table, column]}'" if (table, column) in DEFAULTS else ""
            changes.append(f"MODIFY `{column}` LONGTEXT NOT NULL{default}")
        op.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    for table, key in keys:
        remote = key["referred_columns"]
        op.create_foreign_key(key["name"], table, key["referred_table"], key["constrained_columns"], remote)


def _create_chain() -> None:
    chain = op.create_table(
        "audit_chain",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("purged_seq", sa.Integer, nullable=False),
        sa.Column("purged_hash", sa.String(64), nullable=False),
    )
    audit = sa.table("audit", sa.column("seq"), sa.column("hash"), sa.column("previous"))
    query = sa.select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)
    seq, digest = op.get_bind().execute(query).one_or_none() or (0, "")
    # The records before the first one were exported and deleted before a downgrade.
    query = sa.select(audit.c.seq - 1, audit.c.previous).order_by(audit.c.seq).limit(1)
    purged_seq, purged_hash = op.get_bind().execute(query).one_or_none() or (0, "")
    row = {"id": 1, "seq": seq, "hash": digest, "purged_seq": purged_seq, "purged_hash": purged_hash}
    op.bulk_insert(chain, [row])


def _trigger(table: str, name: str, body: str) -> None:
    op.execute(f"CREATE TRIGGER {table}_refuses_{name} {body}")


def _drop_triggers(table: str, *names: str) -> None:
    for name in names:
        op.execute(f"DROP TRIGGER IF EXISTS {table}_refuses_{name}")


def _abort(table: str) -> str:
    return f"BEGIN SELECT RAISE(ABORT, '{REFUSALS[table]}'); END"


def _guard_sqlite(table: str) -> None:
    """INSERT OR REPLACE deletes a row without a delete trigger (https://www.sqlite.org/lang_conflict.html)."""
    _trigger(table, "update", f"BEFORE UPDATE ON {table} {_abort(table)}")
    _guard_deletes(table)
    stored = f"EXISTS (SELECT 1 FROM {table} WHERE seq = NEW.seq)"  # noqa: S608
    _trigger(table, "replace", f"BEFORE INSERT ON {table} WHEN {stored} {_abort(table)}")


def _guard_deletes(table: str) -> None:
    allowed = CAN_BE_DELETED[table].format(integer="INTEGER")
    _trigger(table, "delete", f"BEFORE DELETE ON {table} WHEN NOT ({allowed}) {_abort(table)}")


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
    _trigger(table, "update", f"BEFORE UPDATE ON {table} FOR EACH ROW {refuse}")
    allowed = CAN_BE_DELETED[table].format(integer="SIGNED")
    _trigger(table, "delete", f"BEFORE DELETE ON {table} FOR EACH ROW IF NOT ({allowed}) THEN {refuse}; END IF")
