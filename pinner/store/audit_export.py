"""Exports old records of the audit trail to files, and then deletes them from the database.

A file has one record a line, as JSON with every field, so that its chain of hashes can be checked without the
database. The database keeps the number and hash of the last exported record, from which ``verify`` continues.
"""

import gzip
import json
import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, String, and_, delete, func, select, type_coerce, update

from pinner.model.audit import AuditEvent
from pinner.model.errors import StoreUnavailable
from pinner.store import tables
from pinner.store.audit import append_events
from pinner.store.engine import reading
from pinner.store.write import write

BATCH = 5000
"""Records of one transaction, and of one member of the compressed file."""


def export_audit(engine: Engine, folder: Path, before: datetime, event: AuditEvent) -> Path | None:
    """Export the records before the first one that is not older than a moment, delete them, and return the file.

    ``event`` records the export; its subject and result are filled in. None: no record is old enough. The file is
    complete and durable before the first record is deleted. Raises StoreUnavailable.
    """
    _delete_all_exported(engine)  # of an export that was killed
    first, last = _range(engine, before)
    if last < first:
        return None
    path = folder / f"audit-{first}-{last}.jsonl.gz"
    try:
        digest = _write(engine, path, first, last)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from None
    write(engine, partial(_move_checkpoint, last=last, digest=digest, event=event, path=path))
    _delete_all_exported(engine)
    return path


def _range(engine: Engine, before: datetime) -> tuple[int, int]:
    audit = tables.audit.c
    with reading(engine) as connection:
        purged = connection.execute(select(tables.audit_chain.c.purged_seq)).scalar_one()
        newest = connection.execute(select(tables.audit_chain.c.seq)).scalar_one()
        young = type_coerce(audit.at, String) >= tables.utc_text(before)
        kept = connection.execute(select(func.min(audit.seq)).where(and_(audit.seq > purged, young))).scalar()
    return purged + 1, newest if kept is None else kept - 1


def _write(engine: Engine, path: Path, first: int, last: int) -> str:
    """Write the file under another name and rename it; returns the hash of the last record."""
    part = path.with_name(f".{path.name}.part")
    digest = ""
    with part.open("wb") as raw:
        os.fchmod(raw.fileno(), 0o600)
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
            for start in range(first, last + 1, BATCH):
                for record in _records(engine, start, min(start + BATCH - 1, last)):
                    digest = record["hash"]
                    packed.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        raw.flush()
        os.fsync(raw.fileno())
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest


def _records(engine: Engine, first: int, last: int) -> Sequence[dict[str, Any]]:
    raw = [type_coerce(column, String).label("at") if column.name == "at" else column for column in tables.audit.c]
    query = select(*raw).where(tables.audit.c.seq.between(first, last)).order_by(tables.audit.c.seq)
    with reading(engine) as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def _move_checkpoint(connection: Connection, last: int, digest: str, event: AuditEvent, path: Path) -> None:
    connection.execute(update(tables.audit_chain).values(purged_seq=last, purged_hash=digest))
    values = {name: getattr(event, name) for name in AuditEvent.__dataclass_fields__}
    append_events(connection, [AuditEvent(**values | {"subject": path.name, "result": f"records to {last}: {digest}"})])


def _delete_all_exported(engine: Engine) -> None:
    while write(engine, _delete_exported):
        pass


def _delete_exported(connection: Connection) -> int:
    audit, chain = tables.audit, tables.audit_chain
    purged = connection.execute(select(chain.c.purged_seq)).scalar_one()
    query = select(audit.c.seq).where(audit.c.seq <= purged).order_by(audit.c.seq).limit(BATCH)
    found = list(connection.execute(query).scalars())
    if found:
        connection.execute(delete(audit).where(audit.c.seq <= found[-1]))
    return len(found)
