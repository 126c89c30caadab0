"""Deletes old rows in bounded batches, so that writers never wait for long."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    String,
    Table,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy import type_coerce as as_type

from pinner.model.run.agent_audit import ChainHead, named_head
from pinner.model.run.audit import AuditAction
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write
from pinner.store.runs.in_force import IN_FORCE

BATCH = 500
"""Rows that one transaction deletes."""


Needed = Callable[[Collection[str]], Collection[str]]
"""Returns the runs among those of the given ids that the undo of other runs needs."""


def purge_runs(
    engine: Engine,
    before: datetime,
    is_kept: Callable[[str], bool],
    needed: Needed = lambda _: (),
    *,
    dry_run: bool = False,
) -> int:
    """Delete the ended runs that began before a moment, with their entries; returns their number.

    Never deleted are the run of a recorded placement, and a run with changes in place, unless ``is_kept`` says for its
    id that it cannot be rolled back any more; nor the runs that the others need. ``dry_run`` only counts. Raises
    StoreUnavailable.
    """
    due = list(_due(engine, before, is_kept))
    # A thread that inherits a mask during the search is in the journal before it gets another mask.
    kept = frozenset(needed(due)) if due else frozenset()
    due = [run for run in due if run not in kept]
    for start in range(0, 0 if dry_run else len(due), BATCH):
        write(engine, partial(_delete_runs, ids=due[start : start + BATCH]))
    return len(due)


def _due(engine: Engine, before: datetime, is_kept: Callable[[str], bool]) -> Iterator[str]:
    """The ids of the old runs that can be deleted, unless others need them."""
    after = 0
    while True:
        with reading(engine) as connection:
            rows = connection.execute(_ended_runs(before, after)).all()
            placed = _placed_plans(connection)
        if not rows:
            return
        after = rows[-1].seq
        yield from (row.id for row in rows if row.plan not in placed and not (row.in_place and is_kept(row.id)))


def purge_plans(engine: Engine, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
    """Delete plans made before a moment that no run and no placement refers to, then snapshots taken before it that no
    plan refers to; returns both numbers. ``dry_run`` only counts. Raises StoreUnavailable."""
    plans, snapshots = tables.plans, tables.snapshots
    with reading(engine) as connection:
        placed = _placed_plans(connection)
    old_plan = and_(
        _is_before(plans.c.created_at, before),
        ~exists().where(tables.runs.c.plan == plans.c.id),
        plans.c.id.not_in(placed),
    )
    old_snapshot = and_(_is_before(snapshots.c.taken_at, before), ~exists().where(plans.c.snapshot == snapshots.c.id))
    return _purge(engine, plans, old_plan, dry_run=dry_run), _purge(engine, snapshots, old_snapshot, dry_run=dry_run)


def purge_tokens(engine: Engine, before: datetime, *, dry_run: bool = False) -> int:
    """Delete the API's tokens that expired or were revoked before a moment; returns their number."""
    table = tables.tokens
    ended = or_(_is_before(table.c.expires_at, before), _is_before(table.c.revoked_at, before))
    return _purge(engine, table, ended, dry_run=dry_run)


def purge_heads(engine: Engine, before: datetime, *, dry_run: bool = False) -> int:
    """Delete the signed heads from before a moment; returns their number.

    A later head covers the same records. Never deleted are the last head of each host, and a head that a record in the
    audit trail names.
    """
    table, audit = tables.agent_heads, tables.audit.c
    old = select(table.c.host, table.c.seq, table.c.hash).where(_is_before(table.c.at, before))
    with reading(engine) as connection:
        newest = select(table.c.host, func.max(table.c.seq)).group_by(table.c.host)
        last = {row.host: row[1] for row in connection.execute(newest)}
        rows = [row for row in connection.execute(old) if row.seq != last[row.host]]
        ends = select(audit.after).where(audit.action == AuditAction.RUN_END.value)
        named = {named_head(after) for after in connection.execute(ends).scalars()} if rows else set()
    due = [tuple(row) for row in rows if ChainHead(row.seq, row.hash) not in named]
    for start in range(0, 0 if dry_run else len(due), BATCH):
        key = tuple_(table.c.host, table.c.seq, table.c.hash)
        rest = delete(table).where(key.in_(due[start : start + BATCH]))
        write(engine, partial(Connection.execute, statement=rest))
    return len(due)


def purge_answers(engine: Engine, before: datetime, *, dry_run: bool = False) -> int:
    """Delete the answers by idempotency key from before a moment; returns their number."""
    table = tables.idempotency_keys
    old = _is_before(table.c.at, before)
    with reading(engine) as connection:
        count = connection.execute(select(func.count()).select_from(table).where(old)).scalar_one()
    if count and not dry_run:
        write(engine, partial(Connection.execute, statement=delete(table).where(old)))
    return int(count)


def _purge(engine: Engine, table: Table, old: ColumnElement[bool], *, dry_run: bool) -> int:
    if dry_run:
        with reading(engine) as connection:
            return int(connection.execute(select(func.count()).select_from(table).where(old)).scalar_one())
    total = 0
    while True:
        deleted = write(engine, partial(_delete_batch, table=table, old=old))
        total += deleted
        if deleted < BATCH:
            return total


def _delete_batch(connection: Connection, table: Table, old: ColumnElement[bool]) -> int:
    # Read and deleted by one writer: no plan can refer to the snapshot in between.
    ids = list(connection.execute(select(table.c.id).where(old).limit(BATCH)).scalars())
    connection.execute(delete(table).where(table.c.id.in_(ids)))
    return len(ids)


def _delete_runs(connection: Connection, ids: Sequence[str]) -> None:
    connection.execute(delete(tables.entries).where(tables.entries.c.run.in_(ids)))
    connection.execute(delete(tables.outcomes).where(tables.outcomes.c.run.in_(ids)))
    connection.execute(delete(tables.runs).where(tables.runs.c.id.in_(ids)))


def _ended_runs(before: datetime, after: int) -> Select[Any]:
    runs, entries = tables.runs.c, tables.entries.c
    # A guest that is gone may have a definition that a run wrote.
    changed = exists().where(
        entries.run == runs.id, or_(entries.state.in_(IN_FORCE), and_(runs.persist, entries.state == "gone"))
    )
    in_place = and_(runs.kind != "rollback", or_(runs.state == "applied", changed))
    query = select(runs.seq, runs.id, runs.plan, in_place.label("in_place"))
    ended = query.where(runs.state != "running", _is_before(runs.started_at, before), runs.seq > after)
    return ended.order_by(runs.seq).limit(BATCH)


def _is_before(column: ColumnElement[Any], moment: datetime) -> ColumnElement[bool]:
    return as_type(column, String) < tables.utc_text(moment)


def _placed_plans(connection: Connection) -> frozenset[str]:
    """The plans of the recorded placements. There is at most one placement for each host."""
    bodies = connection.execute(select(tables.placements.c.body)).scalars()
    return frozenset(json.loads(body)["plan"] for body in bodies)
