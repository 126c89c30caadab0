from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, String, insert, inspect, select, type_coerce, update

from pinner.codec import utc_text
from pinner.model.errors import Busy, Invalid, StoreUnavailable
from pinner.model.page import Page, PageRequest
from pinner.model.run.agent_audit import ChainHead
from pinner.model.run.audit import AuditEvent, AuditRecord, ChainCheck
from pinner.store.audit import chain
from pinner.store.database import tables
from pinner.store.database.engine import LAST_RECORD, Repository, reading, where, write
from pinner.store.database.paging import page

_NO_END = "the table audit_chain has not exactly one row: the end of the trail was deleted or forged"


class Audit(Repository):
    def append(self, *events: AuditEvent) -> None:
        write(self._engine, lambda connection: append_events(connection, events))

    def list(self, host: str | None, actor: str | None, since: datetime | None, part: PageRequest) -> Page[AuditRecord]:
        """The marker is a record's ``seq``. Raises Invalid for since, limit and marker."""
        table = tables.audit.c
        query = select(tables.audit)
        if host is not None:
            query = query.where(table.host == host)
        if actor is not None:
            query = query.where(table.actor == actor)
        if since is not None:
            query = query.where(type_coerce(table.at, String) >= _moment(since))
        with reading(self._engine) as connection:
            return page(connection, query, tables.audit, part, lambda row: AuditRecord(**row._mapping), key="seq")

    def head(self) -> ChainHead:
        with reading(self._engine) as connection:
            return _head(connection)

    def start(self) -> ChainHead:
        """The last record that was exported and deleted; START if none was."""
        with reading(self._engine) as connection:
            return _start(connection)

    def verify(self, observe: Callable[[chain.Fields], None] = lambda _: None) -> ChainCheck:
        """``observe`` gets each record that was not deleted. A missing table or head is a broken trail."""
        with reading(self._engine) as connection:
            for table in (tables.audit, tables.audit_chain):
                if not inspect(connection).has_table(table.name):
                    return ChainCheck(False, 0, 1, "the table of the trail was dropped", "")
            if not _end_is_known(connection):
                return ChainCheck(False, 0, 1, _NO_END, "")
            start, head = _start(connection), _head(connection)
            with closing(_stream(connection, start.seq)) as rows:
                checked = chain.check((dict(row._mapping) for row in rows), start, lambda: head.seq, observe)
        seq = start.seq + checked.records
        if checked.ok and ChainHead(seq, checked.head) != head:
            why = f"record {seq + 1} is missing: the last record was number {head.seq}"
            return ChainCheck(False, checked.records, seq + 1, why, checked.head)
        return checked

    def stream(self, start: ChainHead) -> Iterator[chain.Fields]:
        """The records after ``start`` as they are stored, oldest first. Read it to its end, or close it. Raises Busy
        where such records were deleted meanwhile."""
        with reading(self._engine) as connection:
            if _start(connection) != start:
                raise Busy("the audit trail", "its old records were deleted meanwhile", overdue=False)
            with closing(_stream(connection, start.seq)) as rows:
                for row in rows:
                    yield dict(row._mapping)


def _moment(since: datetime) -> str:
    try:
        return utc_text(since)
    except OverflowError:
        raise Invalid("since", since.isoformat(), "a moment of the years 1 to 9999 in UTC") from None


def append_events(connection: Connection, events: Iterable[AuditEvent]) -> None:
    """Within the caller's transaction."""
    due = [chain.fields_of(event) for event in events]
    if not due:
        return
    rows = chain.link(_head(connection), due)
    connection.execute(insert(tables.audit), [row | {"at": datetime.fromisoformat(row["at"])} for row in rows])
    head = ChainHead(rows[-1]["seq"], rows[-1]["hash"])
    connection.execute(update(tables.audit_chain).values(seq=head.seq, hash=head.hash))
    connection.info[LAST_RECORD] = (head.seq, head.hash)


def _end_is_known(connection: Connection) -> bool:
    return len(connection.execute(select(tables.audit_chain.c.id)).all()) == 1


def chain_row(connection: Connection) -> Row[Any]:
    """Raises StoreUnavailable: nothing can follow an unknown record."""
    if not _end_is_known(connection):
        raise StoreUnavailable(where(connection.engine), f"{_NO_END}; restore a backup of the database")
    return connection.execute(select(tables.audit_chain)).one()


def _head(connection: Connection) -> ChainHead:
    row = chain_row(connection)
    return ChainHead(row.seq, row.hash)


def _start(connection: Connection) -> ChainHead:
    row = chain_row(connection)
    return ChainHead(row.purged_seq, row.purged_hash)


def _stream(connection: Connection, after: int) -> Generator[Row[Any], None, None]:
    # The time is read as text, because a record that was changed may contain text that is not a time.
    raw = [type_coerce(column, String).label("at") if column.name == "at" else column for column in tables.audit.c]
    query = select(*raw).where(tables.audit.c.seq > after).order_by(tables.audit.c.seq)
    with connection.execute(query.execution_options(yield_per=1000)) as rows:
        yield from rows
