"""Deletes records of the audit trail that were exported with their chain.

The database keeps the number and hash of the last deleted record, from which ``Audit.verify`` continues.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, Engine, String, and_, delete, func, select, type_coerce, update

from pinner.model.run.agent_audit import ChainHead
from pinner.model.run.audit import AuditEvent
from pinner.store.audit.audit import append_events, chain_row
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write

BATCH = 5000
"""Records that one transaction deletes."""


@dataclass(frozen=True, slots=True)
class OldRecords:
    """The records of the audit trail up to an old one, all of them before the first young one."""

    first: int
    """The number of the first record in the database."""
    last: ChainHead
    """The last old record."""
    newest: int
    """The number of the last record in the database."""


def old_records(engine: Engine, before: datetime, now: datetime) -> OldRecords | None:
    """The records up to the last one from before a moment, and before the first one from this moment to now; None:
    there is none.

    A time after now is of a clock that was ahead, and says nothing. Completes a purge that was killed. Raises
    StoreUnavailable.
    """
    _delete_all_purged(engine)
    audit = tables.audit.c
    with reading(engine) as connection:
        end = chain_row(connection)
        newest, purged = end.seq, end.purged_seq
        at = type_coerce(audit.at, String)
        is_young = at.between(tables.utc_text(before), tables.utc_text(now))
        young = connection.execute(select(func.min(audit.seq)).where(and_(audit.seq > purged, is_young))).scalar()
        is_old = and_(audit.seq > purged, audit.seq <= newest if young is None else audit.seq < young)
        query = select(audit.seq, audit.hash).where(is_old, at < tables.utc_text(before))
        last = connection.execute(query.order_by(audit.seq.desc()).limit(1)).one_or_none()
    return OldRecords(purged + 1, ChainHead(last.seq, last.hash), newest) if last else None


def purge_records(engine: Engine, old: OldRecords, event: AuditEvent) -> bool:
    """Append the record of the export, and delete the old records in batches. Raises StoreUnavailable.

    False: another server has deleted records since ``old`` was read, so the export may lack them; nothing is done.
    """
    moved = write(engine, partial(_move_start, old=old, event=event))
    _delete_all_purged(engine)
    return moved


def _move_start(connection: Connection, old: OldRecords, event: AuditEvent) -> bool:
    chain = tables.audit_chain
    start = {"purged_seq": old.last.seq, "purged_hash": old.last.hash}
    # The condition is part of the update, because the database checks it again after it has waited for another server.
    moved = connection.execute(update(chain).where(chain.c.purged_seq == old.first - 1).values(start)).rowcount
    if moved:
        append_events(connection, [event])
    return bool(moved)


def _delete_all_purged(engine: Engine) -> None:
    while write(engine, _delete_purged):
        pass


def _delete_purged(connection: Connection) -> int:
    audit = tables.audit
    purged = chain_row(connection).purged_seq
    query = select(audit.c.seq).where(audit.c.seq <= purged).order_by(audit.c.seq).limit(BATCH)
    found = list(connection.execute(query).scalars())
    if found:
        connection.execute(delete(audit).where(audit.c.seq <= found[-1]))
    return len(found)
