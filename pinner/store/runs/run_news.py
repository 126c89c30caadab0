"""What is new of a run since its entries were read last."""

from datetime import datetime

from sqlalchemy import Connection, select

from pinner.model.run.journal import Entry
from pinner.store.database import tables
from pinner.store.runs import run_entries
from pinner.store.runs.entry_rows import entry_of

Marks = dict[int, tuple[str, datetime, str]]
"""State, time and error of each entry of a run, by ``seq``: an entry that was noted again has another mark."""


def news(connection: Connection, run: str, seen: Marks) -> tuple[tuple[Entry, ...], int]:
    """The run's entries by ``seq`` that have another mark than in ``seen``, which gets their marks; and the number of
    all its entries."""
    table = tables.entries.c
    rows = connection.execute(select(table.seq, table.state, table.at, table.error).where(table.run == run))
    marks = {row.seq: (row.state, row.at, row.error) for row in rows}
    new = {seq for seq, mark in marks.items() if seen.get(seq) != mark}
    if not new:
        return (), len(marks)
    seen |= marks
    query = select(*run_entries.COLUMNS).where(table.run == run).order_by(table.seq)
    if len(new) <= run_entries.SOME:
        query = query.where(table.seq.in_(new))
    return tuple(entry_of(row) for row in connection.execute(query) if row.seq in new), len(marks)
