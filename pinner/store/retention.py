"""Deletes old rows in batches, so that writers never wait for long."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from pinner.codec import utc_text
from pinner.model.page import batches
from pinner.model.run.agent_audit import ChainHead, named_head
from pinner.model.run.audit import AuditAction, AuditEvent
from pinner.store.audit.audit import append_events, chain_row
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, write
from pinner.store.guest_hints import GuestHints
from pinner.store.runs.in_force import IN_FORCE

RECORDS_BATCH = 5000
BATCH = 500

Needed = Callable[[Collection[str]], Collection[str]]
"""Those of the given runs that the undo of other runs needs."""


@dataclass(frozen=True, slots=True)
class OldRecords:
    first: int
    last: ChainHead
    newest: int


class Retention(Repository):
    """Methods return the number of rows; with ``dry_run`` they only count. Each raises StoreUnavailable."""

    def purge_runs(
        self, before: datetime, is_kept: Callable[[str], bool], needed: Needed = lambda _: (), *, dry_run: bool = False
    ) -> int:
        """The ended runs that began before a moment, with their entries; but not the run of a recorded placement, runs
        with changes in place whose id ``is_kept`` accepts, and runs that these need."""
        due = list(self._due(before, is_kept))
        # A thread that inherits a mask during the search is in the journal before it gets another mask.
        kept = frozenset(needed(due)) if due else frozenset()
        due = [run for run in due if run not in kept]
        for ids in batches([] if dry_run else due, BATCH):
            write(self._engine, partial(_delete_runs, ids=ids))
        return len(due)

    def purge_probes(self, before: datetime, *, dry_run: bool = False) -> int:
        probes = tables.probes
        old = sa.and_(probes.c.state != "running", tables.is_before(probes.c.started_at, before))
        return self._purge(probes, old, dry_run=dry_run)

    def purge_plans(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        """Plans that no run or placement names, then snapshots that no plan names; both numbers."""
        plans, snapshots = tables.plans, tables.snapshots
        with reading(self._engine) as connection:
            placed = _placed_plans(connection)
        old_plan = sa.and_(
            tables.is_before(plans.c.created_at, before),
            ~sa.exists().where(tables.runs.c.plan == plans.c.id),
            plans.c.id.not_in(placed),
        )
        old_snapshot = sa.and_(
            tables.is_before(snapshots.c.taken_at, before), ~sa.exists().where(plans.c.snapshot == snapshots.c.id)
        )
        return self._purge(plans, old_plan, dry_run=dry_run), self._purge(snapshots, old_snapshot, dry_run=dry_run)

    def purge_tokens(self, before: datetime, *, dry_run: bool = False) -> int:
        table = tables.tokens
        ended = sa.or_(tables.is_before(table.c.expires_at, before), tables.is_before(table.c.revoked_at, before))
        return self._purge(table, ended, dry_run=dry_run)

    def purge_heads(self, before: datetime, *, dry_run: bool = False) -> int:
        """Each host's last head, and heads that the audit trail names, stay; a later head covers the same records."""
        table, audit = tables.agent_heads, tables.audit.c
        old = sa.select(table.c.host, table.c.seq, table.c.hash).where(tables.is_before(table.c.at, before))
        with reading(self._engine) as connection:
            newest = sa.select(table.c.host, sa.func.max(table.c.seq)).group_by(table.c.host)
            last = {row.host: row[1] for row in connection.execute(newest)}
            rows = [row for row in connection.execute(old) if row.seq != last[row.host]]
            ends = sa.select(audit.after).where(audit.action == AuditAction.RUN_END.value)
            named = {named_head(after) for after in connection.execute(ends).scalars()} if rows else set()
        due = [tuple(row) for row in rows if ChainHead(row.seq, row.hash) not in named]
        for part in batches([] if dry_run else due, BATCH):
            key = sa.tuple_(table.c.host, table.c.seq, table.c.hash)
            rest = sa.delete(table).where(key.in_(part))
            write(self._engine, partial(sa.Connection.execute, statement=rest))
        return len(due)

    def purge_answers(self, before: datetime, *, dry_run: bool = False) -> int:
        table = tables.idempotency_keys
        old = tables.is_before(table.c.at, before)
        with reading(self._engine) as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(table).where(old)).scalar_one()
        if count and not dry_run:
            write(self._engine, partial(sa.Connection.execute, statement=sa.delete(table).where(old)))
        return int(count)

    def purge_hints(self, host: str, before: datetime, is_kept: Callable[[str], bool]) -> int:
        hints = GuestHints(self._engine)
        return hints.forget(host, [guest for guest in hints.old(host, before) if not is_kept(guest)], before)

    def old_records(self, before: datetime, now: datetime) -> OldRecords | None:
        """Those before the first record from the moment to now: later times are wrong. Completes a killed purge."""
        self._delete_all_purged()
        audit = tables.audit.c
        with reading(self._engine) as connection:
            end = chain_row(connection)
            newest, purged = end.seq, end.purged_seq
            at = sa.type_coerce(audit.at, sa.String)
            is_young = at.between(utc_text(before), utc_text(now))
            young = connection.execute(
                sa.select(sa.func.min(audit.seq)).where(sa.and_(audit.seq > purged, is_young))
            ).scalar()
            is_old = sa.and_(audit.seq > purged, audit.seq <= newest if young is None else audit.seq < young)
            query = sa.select(audit.seq, audit.hash).where(is_old, at < utc_text(before))
            last = connection.execute(query.order_by(audit.seq.desc()).limit(1)).one_or_none()
        return OldRecords(purged + 1, ChainHead(last.seq, last.hash), newest) if last else None

    def purge_records(self, old: OldRecords, event: AuditEvent) -> bool:
        """Append the record of the export, and delete the old records in batches. False, and nothing is done, where
        another server has deleted records since ``old`` was read."""
        moved = write(self._engine, partial(_move_start, old=old, event=event))
        self._delete_all_purged()
        return moved

    def _due(self, before: datetime, is_kept: Callable[[str], bool]) -> Iterator[str]:
        after = 0
        while True:
            with reading(self._engine) as connection:
                rows = connection.execute(_ended_runs(before, after)).all()
                placed = _placed_plans(connection)
            if not rows:
                return
            after = rows[-1].seq
            yield from (row.id for row in rows if row.plan not in placed and not (row.in_place and is_kept(row.id)))

    def _purge(self, table: sa.Table, old: sa.ColumnElement[bool], *, dry_run: bool) -> int:
        if dry_run:
            with reading(self._engine) as connection:
                return int(connection.execute(sa.select(sa.func.count()).select_from(table).where(old)).scalar_one())
        total = 0
        while True:
            deleted = write(self._engine, partial(_delete_batch, table=table, old=old))
            total += deleted
            if deleted < BATCH:
                return total

    def _delete_all_purged(self) -> None:
        while write(self._engine, _delete_purged):
            pass


def _delete_batch(connection: sa.Connection, table: sa.Table, old: sa.ColumnElement[bool]) -> int:
    # Read and deleted by one writer: no plan can refer to the snapshot in between.
    ids = list(connection.execute(sa.select(table.c.id).where(old).limit(BATCH)).scalars())
    connection.execute(sa.delete(table).where(table.c.id.in_(ids)))
    return len(ids)


def _delete_runs(connection: sa.Connection, ids: Sequence[str]) -> None:
    connection.execute(sa.delete(tables.entries).where(tables.entries.c.run.in_(ids)))
    connection.execute(sa.delete(tables.outcomes).where(tables.outcomes.c.run.in_(ids)))
    connection.execute(sa.delete(tables.runs).where(tables.runs.c.id.in_(ids)))


def _ended_runs(before: datetime, after: int) -> sa.Select[Any]:
    runs, entries = tables.runs.c, tables.entries.c
    # A guest that is gone may have a definition that a run wrote.
    changed = sa.exists().where(
        entries.run == runs.id, sa.or_(entries.state.in_(IN_FORCE), sa.and_(runs.persist, entries.state == "gone"))
    )
    in_place = sa.and_(runs.kind != "rollback", sa.or_(runs.state == "applied", changed))
    query = sa.select(runs.seq, runs.id, runs.plan, in_place.label("in_place"))
    ended = query.where(runs.state != "running", tables.is_before(runs.started_at, before), runs.seq > after)
    return ended.order_by(runs.seq).limit(BATCH)


def _placed_plans(connection: sa.Connection) -> frozenset[str]:
    bodies = connection.execute(sa.select(tables.placements.c.body)).scalars()
    return frozenset(json.loads(body)["plan"] for body in bodies)


def _move_start(connection: sa.Connection, old: OldRecords, event: AuditEvent) -> bool:
    chain = tables.audit_chain
    start = {"purged_seq": old.last.seq, "purged_hash": old.last.hash}
    # The condition is part of the update, because the database checks it again after it has waited for another server.
    moved = connection.execute(sa.update(chain).where(chain.c.purged_seq == old.first - 1).values(start)).rowcount
    if moved:
        append_events(connection, [event])
    return bool(moved)


def _delete_purged(connection: sa.Connection) -> int:
    audit = tables.audit
    purged = chain_row(connection).purged_seq
    query = sa.select(audit.c.seq).where(audit.c.seq <= purged).order_by(audit.c.seq).limit(RECORDS_BATCH)
    keys = list(connection.execute(query).scalars())
    if keys:
        connection.execute(sa.delete(audit).where(audit.c.seq <= keys[-1]))
    return len(keys)
