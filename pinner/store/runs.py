"""Runs and their entries: the copy at the centre, and the tables under the agent's journal."""

from collections.abc import Iterable
from typing import Any, get_args

from sqlalchemy import Connection, Engine, Row, bindparam, insert, select, update

from pinner import codec
from pinner.model.errors import NotFound
from pinner.model.journal import Entry, Run, RunState
from pinner.model.plan import Change, ThreadMask
from pinner.store import tables
from pinner.store.engine import reading, writing
from pinner.store.paging import page
from pinner.usecases import Page

ENDED: tuple[RunState, ...] = tuple(state for state in get_args(RunState) if state != "running")

_RUN = [tables.runs.c[name] for name in Run.__dataclass_fields__]


class Runs:
    """The runs of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, run: Run, entries: Iterable[Entry] = ()) -> None:
        """Store a new run."""
        with writing(self._engine) as connection:
            connection.execute(insert(tables.runs).values(_run_row(run)))
            write_entries(connection, entries)

    def save(self, run: Run | None, entries: Iterable[Entry] = ()) -> None:
        """Store what a run and entries of it have become; entries may be new."""
        with writing(self._engine) as connection:
            if run is not None:
                connection.execute(update(tables.runs).filter_by(id=run.id).values(_run_row(run)))
            write_entries(connection, entries)

    def get(self, run: str) -> Run:
        """Raises NotFound."""
        with reading(self._engine) as connection:
            row = connection.execute(select(*_RUN).filter_by(id=run)).one_or_none()
        if row is None:
            raise NotFound("run", run)
        return Run(*row)

    def list(self, host: str | None, limit: int, marker: str) -> Page[Run]:
        """Newest first, of one host or of all. Raises Invalid for limit and marker."""
        query = select(*_RUN, tables.runs.c.seq)
        if host is not None:
            query = query.filter_by(host=host)
        with reading(self._engine) as connection:
            return page(connection, query, tables.runs, limit, marker, lambda row: Run(*row[: len(_RUN)]))

    def running(self) -> tuple[Run, ...]:
        """The runs that have not ended, newest first."""
        query = select(*_RUN).filter_by(state="running").order_by(tables.runs.c.seq.desc())
        with reading(self._engine) as connection:
            return tuple(Run(*row) for row in connection.execute(query))

    def entries(self, run: str) -> tuple[Entry, ...]:
        """By ``seq``; none for an unknown run."""
        query = select(tables.entries).filter_by(run=run).order_by(tables.entries.c.seq)
        with reading(self._engine) as connection:
            return tuple(_entry(row) for row in connection.execute(query))


def write_entries(connection: Connection, entries: Iterable[Entry]) -> None:
    """Insert the entries that are new and update the others, within the caller's transaction."""
    rows = [_entry_row(entry) for entry in entries]
    if not rows:
        return
    table = tables.entries
    runs = {row["run"] for row in rows}
    stored = {tuple(row) for row in connection.execute(select(table.c.run, table.c.seq).where(table.c.run.in_(runs)))}
    new = [row for row in rows if (row["run"], row["seq"]) not in stored]
    if new:
        connection.execute(insert(table), new)
    # A bound name may not be a column's in an UPDATE.
    prefixed = [{f"_{name}": value for name, value in row.items()} for row in rows]
    changed = [row for row in prefixed if (row["_run"], row["_seq"]) in stored]
    if changed:
        values: dict[str, Any] = {
            name: bindparam(f"_{name}") for name in rows[0] if name not in ("run", "seq", "change")
        }
        here = (table.c.run == bindparam("_run")) & (table.c.seq == bindparam("_seq"))
        connection.execute(update(table).where(here).values(values), changed)


def _run_row(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in Run.__dataclass_fields__}


def _entry_row(entry: Entry) -> dict[str, Any]:
    row = {name: getattr(entry, name) for name in Entry.__dataclass_fields__}
    row["change"] = codec.dump(entry.change).decode()
    row["found"] = _FOUND.dump_json(entry.found).decode()
    return row


_FOUND = codec.adapter(tuple[ThreadMask, ...])


def _entry(row: Row[Any]) -> Entry:
    values = dict(row._mapping)
    values["change"] = codec.load(Change, values["change"], "change")
    values["found"] = _FOUND.validate_json(values["found"])
    return Entry(**values)
