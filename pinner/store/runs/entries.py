from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, bindparam, insert, select, update
from sqlalchemy.exc import DBAPIError

from pinner import codec
from pinner.model.change import AffinityChange, Change, MetadataChange, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import Lineage
from pinner.model.run.journal import Damaged, Entry, NodeMemory
from pinner.store.database import tables
from pinner.store.database.damage import is_damage, repair

OWNER_LENGTH = 64
"""Characters; a UUID and a process id have fewer."""

REPEATED = ("kind", "owner", "name", "mask")
_STATE = ("run", "seq", "state", "at", "error", "definition")


def entry_row(entry: Entry) -> dict[str, Any]:
    fixed = {
        "change": codec.dump(entry.change).decode(),
        "lineage": _LINEAGE.dump_json(entry.lineage).decode(),
        "former": _FORMER.dump_json(entry.former).decode(),
    }
    return state_row(entry) | fixed | dict(zip(REPEATED, _repeated(entry.change), strict=True))


def state_row(entry: Entry) -> dict[str, Any]:
    row = {name: getattr(entry, name) for name in _STATE}
    row["found"] = _FOUND.dump_json(entry.found).decode()
    row["memory"] = _MEMORY.dump_json(entry.memory).decode()
    row["inheritors"] = _FOUND.dump_json(entry.inheritors).decode()
    return row


def _repeated(change: Change) -> tuple[str, str, str, str]:
    if isinstance(change, MetadataChange):
        return change.target.kind, "", "", ""
    if not isinstance(change, AffinityChange):
        return "", "", "", ""
    target = change.target
    name = target.name if target.kind == "process" else ""
    return target.kind, target.owner[:OWNER_LENGTH], name, str(change.after)


_FOUND = codec.adapter(tuple[ThreadMask, ...])
_MEMORY = codec.adapter(tuple[NodeMemory, ...])
CHANGE = codec.adapter(Change)
_LINEAGE = codec.adapter(Lineage | None)
_FORMER = codec.adapter(tuple[CpuSet, ...])
NO_INHERITORS = "[]"


def entry_of(row: Row[*tuple[Any, ...]]) -> Entry:
    values = {name: row._mapping[name] for name in Entry.__dataclass_fields__}
    values["change"] = CHANGE.validate_json(values["change"])
    values["found"] = _FOUND.validate_json(values["found"])
    values["memory"] = _MEMORY.validate_json(values["memory"])
    values["lineage"] = _LINEAGE.validate_json(values["lineage"])
    values["inheritors"] = _FOUND.validate_json(values["inheritors"])
    values["former"] = _FORMER.validate_json(values["former"])
    return Entry(**values)


COLUMNS = [tables.entries.c[name] for name in Entry.__dataclass_fields__]
SOME = 500


def read_entries(connection: Connection, run: str) -> tuple[Entry, ...]:
    query = select(*COLUMNS).filter_by(run=run).order_by(tables.entries.c.seq)
    return tuple(entry_of(row) for row in connection.execute(query))


def write_entries(connection: Connection, entries: Iterable[Entry]) -> None:
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
    table = tables.entries
    for entry in entries:
        row = entry_row(entry)
        same = update(table).filter_by(run=entry.run, seq=entry.seq)
        connection.execute(same.values({name: row[name] for name in ("change", "found", "definition")}))


def _update(connection: Connection, changed: list[dict[str, Any]]) -> None:
    table = tables.entries
    same_entry = (table.c.run == bindparam("_run")) & (table.c.seq == bindparam("_seq"))
    # The inheritors are written while the change is undone, and its final state does not repeat them.
    for has_inheritors in (False, True):
        due = [row for row in changed if (row["_inheritors"] != NO_INHERITORS) == has_inheritors]
        same = ("_run", "_seq") if has_inheritors else ("_run", "_seq", "_inheritors")
        if due:
            values: dict[str, Any] = {name[1:]: bindparam(name) for name in due[0] if name not in same}
            connection.execute(update(table).where(same_entry).values(values), due)


Marks = dict[int, tuple[str, datetime, str]]
"""State, time and error by ``seq``: an entry noted again has another mark."""


def news(connection: Connection, run: str, seen: Marks) -> tuple[tuple[Entry, ...], int]:
    """The entries with another mark than in ``seen``, which gets their marks; and the number of all entries."""
    table = tables.entries.c
    rows = connection.execute(select(table.seq, table.state, table.at, table.error).where(table.run == run))
    marks = {row.seq: (row.state, row.at, row.error) for row in rows}
    new = {seq for seq, mark in marks.items() if seen.get(seq) != mark}
    if not new:
        return (), len(marks)
    seen |= marks
    query = select(*COLUMNS).where(table.run == run).order_by(table.seq)
    if len(new) <= SOME:
        query = query.where(table.seq.in_(new))
    return tuple(entry_of(row) for row in connection.execute(query) if row.seq in new), len(marks)


BATCH = 1000

T = TypeVar("T")
_ENTRIES = tables.entries.c
_FACTS = [_ENTRIES[name] for name in ("kind", "owner", "name", "mask")]


def readable(connection: Connection, query: Select[Any], read: Callable[[Row[Any]], T]) -> Iterator[T | Damaged]:
    """For each damaged entry, what else is stored of it."""
    count = 0
    try:
        # Closed at once: a server keeps a cursor for it.
        with connection.execute(query.execution_options(yield_per=BATCH)) as result:
            for row in result:
                value = read(row)
                count += 1
                yield value
        return
    except (ValueError, DBAPIError) as error:
        if not is_damage(error):
            raise
    keys = query.with_only_columns(_ENTRIES.run, _ENTRIES.seq, maintain_column_froms=True).offset(count)
    for run, seq in connection.execute(keys).all():
        yield _read_one(connection, query.filter(_ENTRIES.run == run, _ENTRIES.seq == seq), read, run, seq)


def _read_one(
    connection: Connection, query: Select[Any], read: Callable[[Row[Any]], T], run: str, seq: int
) -> T | Damaged:
    try:
        return read(connection.execute(query).one())
    except (ValueError, DBAPIError) as error:
        if not is_damage(error):
            raise
        return _damaged(connection, run, seq, error)


def _damaged(connection: Connection, run: str, seq: int, error: Exception) -> Damaged:
    text = " ".join(str(getattr(error, "orig", None) or error).split())[:200]
    why = f"database {connection.engine.url.database}: a stored value is damaged: {text}"
    why += repair(connection.engine, None)
    boot = connection.execute(select(tables.runs.c.boot).filter_by(id=run)).scalar() or ""
    try:
        kind, owner, name, mask = connection.execute(select(*_FACTS).filter_by(run=run, seq=seq)).one()
        return Damaged(run, seq, why, kind, owner, name, CpuSet.parse(mask) if mask else CpuSet(), boot)
    except (ValueError, DBAPIError) as worse:
        if not is_damage(worse):
            raise
        return Damaged(run, seq, why, boot=boot)
