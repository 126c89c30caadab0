"""The audit trail: records that are only appended; each record contains the hash of the record before it."""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import rfc8785
from sqlalchemy import Connection, Engine, Row, String, func, insert, select, type_coerce

from pinner.model.audit import AuditEvent, AuditRecord, Verification
from pinner.model.errors import Invalid
from pinner.model.page import Page, SortDirection
from pinner.store import tables
from pinner.store.engine import reading, writing
from pinner.store.paging import page

NO_PREVIOUS = ""
"""The previous hash of the first record."""


class Audit:
    """The audit trail of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def append(self, *events: AuditEvent) -> None:
        """Append events in their order, in one durable transaction. Threads and processes may append concurrently."""
        with writing(self._engine) as connection:
            append_events(connection, events)

    def list(
        self,
        host: str | None,
        actor: str | None,
        since: datetime | None,
        limit: int,
        marker: str,
        *,
        direction: SortDirection = "desc",
    ) -> Page[AuditRecord]:
        """Records; the marker is a record's ``seq``. Raises Invalid for since, limit and marker."""
        table = tables.audit.c
        query = select(tables.audit)
        if host is not None:
            query = query.where(table.host == host)
        if actor is not None:
            query = query.where(table.actor == actor)
        if since is not None:
            query = query.where(type_coerce(table.at, String) >= _moment(since))
        with reading(self._engine) as connection:
            return page(connection, query, tables.audit, limit, marker, _record, key="seq", direction=direction)

    def verify(self) -> Verification:
        """Check the hash of every record and its link to the record before. Records are streamed from the database."""
        with reading(self._engine) as connection:
            previous, seq = NO_PREVIOUS, 0
            for row in _stream(connection):
                why = _fault(connection, row._mapping, seq + 1, previous)
                if why:
                    return Verification(False, seq, seq + 1, why, previous)
                previous, seq = row.hash, row.seq
        return Verification(True, seq, 0, "", previous)


def _moment(since: datetime) -> str:
    try:
        return tables.utc_text(since)
    except OverflowError:
        raise Invalid("since", since.isoformat(), "a moment of the years 1 to 9999 in UTC") from None


def append_events(connection: Connection, events: Iterable[AuditEvent]) -> None:
    """Append events within the caller's transaction, so that an action and its audit record are stored together."""
    query = select(tables.audit.c.seq, tables.audit.c.hash).order_by(tables.audit.c.seq.desc()).limit(1)
    last = connection.execute(query).one_or_none()
    length, previous = (last.seq, last.hash) if last else (0, NO_PREVIOUS)
    rows = []
    for seq, event in enumerate(events, length + 1):
        row = {name: getattr(event, name) for name in AuditEvent.__dataclass_fields__}
        # A plain string: not every database driver accepts an enum.
        row |= {"action": event.action.value, "seq": seq, "previous": previous}
        previous = row["hash"] = _hash(row | {"at": tables.utc_text(event.at)})
        rows.append(row)
    if rows:
        connection.execute(insert(tables.audit), rows)


def _stream(connection: Connection) -> Iterator[Row[Any]]:
    # The time is read as text, because a record that was changed may contain text that is not a time.
    raw = [type_coerce(column, String).label("at") if column.name == "at" else column for column in tables.audit.c]
    yield from connection.execute(select(*raw).order_by(tables.audit.c.seq).execution_options(yield_per=1000))


def _fault(connection: Connection, row: Any, expected: int, previous: str) -> str:
    """Why the row is not the correct record number ``expected``; empty if it is."""
    if row["seq"] != expected:
        return f"record {expected} is missing: after record {expected - 1} comes record {row['seq']}"
    if _hash(row) != row["hash"]:
        last = connection.execute(select(func.max(tables.audit.c.seq))).scalar_one()
        # The check stops at the first wrong record, so it can afford to try every number for this one.
        numbers = (seq for seq in range(1, last + 2) if _hash({**row, "seq": seq}) == row["hash"])
        written = next(numbers, None)
        if written is None:
            return f"record {expected} was changed: its content does not match its hash"
        return f"record {expected} was reordered: it was written as record {written}"
    if row["previous"] != previous:
        return f"record {expected} does not follow record {expected - 1}: one of the two was replaced"
    return ""


def _hash(row: Any) -> str:
    """SHA-256 of the canonical JSON (RFC 8785) of every field except the hash itself; ``previous`` is included."""
    fields = {name: row[name] for name in AuditRecord.__dataclass_fields__ if name != "hash"}
    try:
        return hashlib.sha256(rfc8785.dumps(fields)).hexdigest()
    except rfc8785.CanonicalizationError:
        return "no hash: a field is not text"


def _record(row: Row[Any]) -> AuditRecord:
    return AuditRecord(**row._mapping)
