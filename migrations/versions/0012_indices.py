"""Add indices, so that no list page and no observation reads a whole table.

An entry repeats the kind, owner and name of its target, and the mask of its change, in columns of their own.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0012"
down_revision = "0011"

LONG_TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
IN_FORCE = "state IN ('intent', 'done', 'stuck')"
OF_JOURNAL = {
    "masks_in_force": ("mask", f"mask != '' AND {IN_FORCE}"),
    "masks_of_processes": ("mask", f"kind = 'process' AND {IN_FORCE}"),
    "names_of_processes": ("name", f"kind = 'process' AND {IN_FORCE}"),
}
"""For the agent's journal, which is always SQLite. A mask can be too long for an index of the others."""
COLUMNS = {"kind": sa.String(16), "owner": sa.String(64), "name": LONG_TEXT, "mask": LONG_TEXT}
INDICES: dict[str, tuple[str, list[str]]] = {
    "entries_of_owner": ("entries", ["owner"]),
    "runs_of_host_in_state": ("runs", ["host", "kind", "state", "seq"]),
    "runs_of_host_by_state": ("runs", ["host", "state", "seq"]),
    "runs_of_plan": ("runs", ["plan"]),
    "plans_of_snapshot": ("plans", ["snapshot"]),
    "audit_of_actor": ("audit", ["actor", "seq"]),
}
_ROWS = 1000
"""How many entries are read at a time: a journal may have hundreds of thousands."""

_ENTRIES = sa.table(
    "entries",
    sa.column("run", sa.String),
    sa.column("seq", sa.Integer),
    sa.column("change", sa.Text),
    *(sa.column(name, kind) for name, kind in COLUMNS.items()),
)


def upgrade() -> None:
    """Add the columns, fill them, and create the indices."""
    for name, kind in COLUMNS.items():
        op.add_column("entries", sa.Column(name, kind, nullable=False, server_default=""))
    _fill()
    # A downgrade of MariaDB keeps an index.
    kept = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("plans")}
    for name, (table, columns) in INDICES.items():
        if name in kept:
            continue
        prefix: Any = {"actor": 191} if name == "audit_of_actor" else None
        op.create_index(name, table, columns, mysql_length=prefix, mariadb_length=prefix)
    if op.get_bind().dialect.name == "sqlite":
        for name, (column, condition) in OF_JOURNAL.items():
            op.create_index(name, "entries", [column], sqlite_where=sa.text(condition))


def downgrade() -> None:
    """Drop the indices and the columns. MariaDB keeps an index that a foreign key needs."""
    if op.get_bind().dialect.name == "sqlite":
        for name in OF_JOURNAL:
            op.drop_index(name, "entries")
    for name, (table, _) in INDICES.items():
        if not (name == "plans_of_snapshot" and op.get_bind().dialect.name in ("mysql", "mariadb")):
            op.drop_index(name, table)
    for name in COLUMNS:
        op.drop_column("entries", name)


def _fill() -> None:
    connection = op.get_bind()
    columns = _ENTRIES.c
    key = sa.tuple_(columns.run, columns.seq)
    same_row = (columns.run == sa.bindparam("_run")) & (columns.seq == sa.bindparam("_seq"))
    update = sa.update(_ENTRIES).where(same_row).values({name: sa.bindparam(f"_{name}") for name in COLUMNS})
    page = sa.select(columns.run, columns.seq, columns.change).order_by(columns.run, columns.seq).limit(_ROWS)
    rows = connection.execute(page).all()
    while rows:
        changed = [{"_run": run, "_seq": seq} | _parts(json.loads(change)) for run, seq, change in rows]
        connection.execute(update, changed)
        rows = connection.execute(page.where(key > (rows[-1].run, rows[-1].seq))).all()


def _parts(change: Any) -> dict[str, str]:
    target = change["target"]
    if change["kind"] != "affinity":
        return {"_kind": "", "_owner": "", "_name": "", "_mask": ""}
    name = target["name"] if target["kind"] == "process" else ""
    return {"_kind": target["kind"], "_owner": target["owner"][:64], "_name": name, "_mask": change["after"]}
