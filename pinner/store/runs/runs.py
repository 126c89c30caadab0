"""The agent's journal has the original of each run, the central database a copy."""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from pinner import codec
from pinner.model.change import AffinityChange, Target
from pinner.model.errors import NotFound, asks_for_another_plan
from pinner.model.outcome.outcome import PROBE_ORIGIN
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Placement
from pinner.model.policy import Expected
from pinner.model.run.agent_audit import AgentEvent, SignedHead
from pinner.model.run.audit import AuditEvent
from pinner.model.run.journal import Damaged, Entry, InForce, Run, RunState
from pinner.store.audit import agent_chain
from pinner.store.audit.agent_chain import add_head
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import Repository, put_host_row, reading, write
from pinner.store.database.paging import page
from pinner.store.policies import require_policy
from pinner.store.runs import in_force
from pinner.store.runs.entries import (
    CHANGE,
    COLUMNS,
    OWNER_LENGTH,
    Marks,
    correct_entries,
    entry_of,
    news,
    read_entries,
    readable,
    write_entries,
)

_MAX_OWNERS = 500

Event = AuditEvent | AgentEvent


class Runs(Repository):
    def add(
        self, run: Run, entries: Iterable[Entry] = (), events: Iterable[Event] = (), policy: Expected = None
    ) -> None:
        """Raises PreconditionFailed where the host's policy has not the revision ``policy``, if given."""
        entries, events = tuple(entries), tuple(events)

        def store(connection: sa.Connection) -> None:
            require_policy(connection, run.host, policy)
            connection.execute(sa.insert(tables.runs).values(_run_row(run)))
            write_entries(connection, entries)
            _append(connection, events)

        write(self._engine, store)

    def save(self, entries: Iterable[Entry], events: Iterable[Event] = (), *, running: str = "") -> bool:
        """False, and nothing is stored, where another process has stored the end of the run ``running``, if given."""
        entries, events = tuple(entries), tuple(events)

        def store(connection: sa.Connection) -> bool:
            state = sa.select(tables.runs.c.state).filter_by(id=running)
            if running and connection.execute(state).scalar() != "running":
                return False
            write_entries(connection, entries)
            _append(connection, events)
            return True

        return write(self._engine, store)

    def end(
        self,
        run: Run,
        entries: Iterable[Entry] = (),
        events: Iterable[Event] = (),
        head: SignedHead | None = None,
        *,
        changed: Callable[[Iterable[Entry]], Iterable[Event]] | None = None,
        also: Collection[str] = (),
        corrected: Collection[Entry] = (),
    ) -> bool:
        """False, and nothing is stored, if it has ended already. A rollback's final state becomes that of the run that
        it undid, or of all. ``changed`` makes the audit records of the entries that differ from the stored ones.
        ``head``: the agent's signed head. ``also``: see ``opened_later``. ``corrected``: see apply's Journal."""
        entries, events = tuple(entries), tuple(events)

        def store(connection: sa.Connection) -> bool:
            if not connection.execute(_update(run.id).filter_by(state="running").values(_run_row(run))).rowcount:
                return False
            if run.undoes and run.state in ROLLED_BACK:
                connection.execute(_update(run.undoes).values(state=run.state))
            known = read_entries(connection, run.undoes or run.id) if changed else ()
            stored = {stored_entry.seq: stored_entry for stored_entry in known}
            due = [entry for entry in entries if entry.is_news(stored.get(entry.seq))]
            write_entries(connection, due)
            correct_entries(connection, corrected)
            if run.undoes_all and run.state in ROLLED_BACK:
                in_force.close_all(connection, run, read_entries(connection, run.id), also)
            _append(connection, [*(changed(due) if changed else ()), *events])
            if head is not None:
                add_head(connection, head)
            return True

        return write(self._engine, store)

    def get(self, run: str) -> Run:
        """Raises NotFound."""
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(*RUN).filter_by(id=run)).one_or_none()
        if row is None:
            raise NotFound("run", run)
        return Run(*row)

    def list(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        """Raises Invalid for limit and marker."""
        query = sa.select(*RUN, tables.runs.c.seq)
        if host is not None:
            query = query.filter_by(host=host)
        if state is not None:
            query = query.filter_by(state=state)
        with reading(self._engine) as connection:
            return page(connection, query, tables.runs, part, lambda row: Run(*row[: len(RUN)]))

    def running(self) -> tuple[Run, ...]:
        query = sa.select(*RUN).filter_by(state="running").order_by(tables.runs.c.seq.desc())
        with reading(self._engine) as connection:
            return tuple(Run(*row) for row in connection.execute(query))

    def opened_later(self, run: Run) -> tuple[str, ...]:
        """The host's runs opened later, which the agent may have begun earlier."""
        runs = tables.runs.c
        since = sa.select(runs.seq).where(runs.id == run.id).scalar_subquery()
        with reading(self._engine) as connection:
            return tuple(
                connection.execute(sa.select(runs.id).where(runs.host == run.host, runs.seq > since)).scalars()
            )

    def in_effect(self) -> tuple[Run, ...]:
        """Applies that changed something and were not rolled back, and open runs, newest first."""
        applied = sa.and_(tables.runs.c.kind == "apply", tables.runs.c.state.in_(APPLIED), has_entry())
        query = (
            sa.select(*RUN).where(sa.or_(applied, tables.runs.c.state == "running")).order_by(tables.runs.c.seq.desc())
        )
        with reading(self._engine) as connection:
            return tuple(Run(*row) for row in connection.execute(query))

    def last_applied(self, host: str) -> tuple[int, Run] | None:
        """The host's latest apply that succeeded, at least in part, and was not rolled back, with its number; none of a
        probe. One that changed nothing counts until a later rollback, which may undo the changes that it had found
        made."""
        with reading(self._engine) as connection:
            return last_applied(connection, host)

    def was_refused(self, plan: str) -> bool:
        """As stale, or by the agent's rules, and no apply made it."""
        query = sa.select(tables.runs.c.state, tables.runs.c.error).filter_by(plan=plan, kind="apply")
        with reading(self._engine) as connection:
            runs = connection.execute(query).all()
        refused = any(state == "failed" and asks_for_another_plan(plan, error) for state, error in runs)
        return refused and not any(state in APPLIED for state, _ in runs)

    def last_change(self, host: str, owners: Collection[str]) -> str:
        """The host's latest run with a change in place of one of these guests or processes; else empty."""
        runs, table = tables.runs.c, tables.entries.c
        wanted = sorted({owner[:OWNER_LENGTH] for owner in owners})[:_MAX_OWNERS]
        query = (
            sa.select(runs.id)
            .join(tables.entries, runs.id == table.run)
            .where(runs.host == host, runs.kind == "apply", table.state == "done", table.owner.in_(wanted))
            .order_by(runs.seq.desc())
            .limit(1)
        )
        with reading(self._engine) as connection:
            return connection.execute(query).scalar() or ""

    def number(self, run: str) -> int:
        """In the order of all runs, which needs no clock. Raises NotFound."""
        with reading(self._engine) as connection:
            if (seq := connection.execute(sa.select(tables.runs.c.seq).filter_by(id=run)).scalar()) is None:
                raise NotFound("run", run)
            return int(seq)

    def recorded_changes(self, host: str | None, guest: str) -> tuple[Entry, ...]:
        """See Journal.changes_of; ``host``: None for all."""
        runs, table = tables.runs.c, tables.entries.c
        query = (
            sa.select(*COLUMNS)
            .join(tables.runs, runs.id == table.run)
            .where(table.state.in_(("done", "stuck")), table.owner == guest[:OWNER_LENGTH])
            .order_by(runs.seq, table.seq)
        )
        if host is not None:
            query = query.where(runs.host == host)
        with reading(self._engine) as connection:
            entries = list(map(entry_of, connection.execute(query)))
        return tuple(
            entry
            for entry in entries
            if isinstance(entry.change, AffinityChange) and entry.change.target.owner == guest
        )

    def entries(self, run: str) -> tuple[Entry, ...]:
        with reading(self._engine) as connection:
            return read_entries(connection, run)

    def readable_entries(self, run: str) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
        query = sa.select(*COLUMNS).filter_by(run=run).order_by(tables.entries.c.seq)
        with reading(self._engine) as connection:
            records = tuple(readable(connection, query, entry_of))
        entries = tuple(record for record in records if isinstance(record, Entry))
        return entries, tuple(record for record in records if isinstance(record, Damaged))

    def news(self, run: str, seen: Marks) -> tuple[tuple[Entry, ...], int]:
        with reading(self._engine) as connection:
            return news(connection, run, seen)

    def in_force(self, host: str, after: str = "") -> Iterator[InForce | Damaged]:
        query = sa.select(*COLUMNS, tables.runs.c.persist, tables.runs.c.boot).where(in_force.of_host(host))
        if after:
            query = query.where(tables.runs.c.seq > sa.select(tables.runs.c.seq).filter_by(id=after).scalar_subquery())
        query = query.order_by(tables.runs.c.seq, tables.entries.c.seq)
        with reading(self._engine) as connection:
            yield from readable(connection, query, lambda row: InForce(entry_of(row), row.persist, row.boot))

    def changed_later(self, run: str, most: int) -> tuple[tuple[Run, Target], ...]:
        changed: dict[str, tuple[int, Target]] = {}
        due = [run]
        with reading(self._engine) as connection:
            while due and len(changed) < most:
                for name, seq, target in _changed_later(connection, due.pop(0)):
                    if name not in changed:
                        changed[name] = seq, target
                        due.append(name)
                    if len(changed) == most:
                        break
        newest_first = sorted(changed, key=lambda name: changed[name][0], reverse=True)
        return tuple((self.get(name), changed[name][1]) for name in newest_first)


def _changed_later(connection: sa.Connection, run: str) -> Iterator[tuple[str, int, Target]]:
    changes = [entry.change for entry in read_entries(connection, run) if entry.state in in_force.IN_FORCE]
    results = {change.target.key: in_force.result_of(change) for change in changes}
    owners = {change.target.owner[:OWNER_LENGTH] for change in changes}
    for name, seq, body in in_force.later(connection, run, owners):
        change = CHANGE.validate_json(body)
        if results.get(change.target.key, in_force.result_of(change)) != in_force.result_of(change):
            yield name, seq, change.target


def _append(connection: sa.Connection, events: Iterable[Event]) -> None:
    due = list(events)
    append_events(connection, [event for event in due if isinstance(event, AuditEvent)])
    agent_chain.append_events(connection, [event for event in due if isinstance(event, AgentEvent)])


def _update(run: str) -> sa.Update:
    return sa.update(tables.runs).filter_by(id=run)


def _run_row(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in Run.__dataclass_fields__}


RUN = [tables.runs.c[name] for name in Run.__dataclass_fields__]
APPLIED: tuple[RunState, ...] = ("applied", "applied_partly")
ROLLED_BACK: tuple[RunState, ...] = ("rolled_back", "rolled_back_partly")


def has_entry() -> sa.ColumnElement[bool]:
    return sa.exists().where(tables.entries.c.run == tables.runs.c.id)


def last_applied(connection: sa.Connection, host: str) -> tuple[int, Run] | None:
    # One query for each state: an index has the runs of one state in their order.
    rows = (connection.execute(_QUERY, {"host": host, "state": state}).one_or_none() for state in APPLIED)
    last = max((row for row in rows if row is not None), key=lambda row: row.seq, default=None)
    return None if last is None else (last.seq, Run(*last[: len(RUN)]))


def _query() -> sa.Select[Any]:
    runs, later = tables.runs.c, tables.runs.alias().c
    host: sa.BindParameter[str] = sa.bindparam("host")
    rolled_back = sa.exists().where(
        later.host == host, later.kind == "rollback", later.state.in_(ROLLED_BACK), later.seq > runs.seq
    )
    counts = sa.and_(sa.or_(has_entry(), ~rolled_back), ~runs.origin.startswith(PROBE_ORIGIN))
    query = sa.select(*RUN, runs.seq).where(
        runs.host == host, runs.kind == "apply", runs.state == sa.bindparam("state")
    )
    return query.where(counts).order_by(runs.seq.desc()).limit(1)


_QUERY = _query()
"""Building it takes eight times as long as executing it, and each reconcile asks several times."""


class Placements(Repository):
    def get(self, host: str) -> tuple[Placement, int] | None:
        """With the number of the last run that it takes into account."""
        table = tables.placements.c
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(table.body, table.run_seq).filter_by(host=host)).one_or_none()
        return (codec.load(Placement, row.body, "placement"), row.run_seq) if row else None

    def put(self, placement: Placement, at: datetime, run_seq: int, last_run: int | None = None) -> None:
        """``run_seq``: the number of the last run that it takes into account. ``last_run``: that of the host's last
        applied run, as the caller has read it (0: none); nothing is stored if it is another one."""
        values = {"stored_at": at, "run_seq": run_seq, "body": codec.dump(placement).decode()}

        def store(connection: sa.Connection) -> None:
            if last_run is None or last_run == (last_applied(connection, placement.host) or (0, None))[0]:
                put_host_row(connection, tables.placements, placement.host, values)

        write(self._engine, store)
