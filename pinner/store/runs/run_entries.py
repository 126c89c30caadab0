"""The entries of a run in the database."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from pinner.model.run.journal import Entry
from pinner.store.database import tables
from pinner.store.runs.entry_rows import NO_INHERITORS, entry_of, entry_row, state_row

COLUMNS = [tables.entries.c[name] for name in Entry.__dataclass_fields__]
SOME = 500
"""The largest number of entries that are searched one by one."""


def read_entries(connection: Connection, run: str) -> tuple[Entry, ...]:
    """The run's entries by ``seq``; none for an unknown run."""
    query = select(*COLUMNS).filter_by(run=run).order_by(tables.entries.c.seq)
    return tuple(entry_of(row) for row in connection.execute(query))


def write_entries(connection: Connection, entries: Iterable[Entry]) -> None:
    """Insert new entries and update stored ones."""
    entries = tuple(entries)
    if not entries:
        return
    table = tables.entries
    known = select(table.c.run, table.c.seq).where(table.c.run.in_({entry.run for entry in entries}))
    if len(entries) <= SOME:
        # A rollback of all runs can have many thousands of entries, and notes a few of them at a time.
        known = known.where(table.c.seq.in_({entry.seq for entry in entries}))
    stored = {tuple(row) for row in connection.execute(known)}
    new = [entry_row(entry) for entry in entries if (entry.run, entry.seq) not in stored]
    if new:
        connection.execute(insert(table), new)
    changed = [state_row(entry) for entry in entries if (entry.run, entry.seq) in stored]
    # In an UPDATE, SQLAlchemy does not allow a bound parameter with the name of a column.
    _update(connection, [{f"_{name}": value for name, value in row.items()} for row in changed])


def correct_entries(connection: Connection, entries: Iterable[Entry]) -> None:
    """Replace the prior masks and definitions of stored entries, and the masks of their found threads."""
    table = tables.entries
    for entry in entries:
        row = entry_row(entry)
        same = update(table).filter_by(run=entry.run, seq=entry.seq)
        connection.execute(same.values({name: row[name] for name in ("change", "found", "definition")}))


def _update(connection: Connection, changed: list[dict[str, Any]]) -> None:
    """Update stored entries; the names of their columns have a prefix."""
    table = tables.entries
    same_entry = (table.c.run == bindparam("_run")) & (table.c.seq == bindparam("_seq"))
    # The inheritors are written while the change is undone, and its final state does not repeat them.
    for has_inheritors in (False, True):
        due = [row for row in changed if (row["_inheritors"] != NO_INHERITORS) == has_inheritors]
        same = ("_run", "_seq") if has_inheritors else ("_run", "_seq", "_inheritors")
        if due:
            values: dict[str, Any] = {name[1:]: bindparam(name) for name in due[0] if name not in same}
            connection.execute(update(table).where(same_entry).values(values), due)
