"""The latest apply of a host that succeeded and was not rolled back."""

from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Select, and_, bindparam, exists, or_, select

from pinner.model.outcome.probe import PROBE_ORIGIN
from pinner.model.run.journal import Run, RunState
from pinner.store.database import tables

RUN = [tables.runs.c[name] for name in Run.__dataclass_fields__]
APPLIED: tuple[RunState, ...] = ("applied", "applied_partly")
"""The states of an apply whose changes, or a part of them, are made."""
ROLLED_BACK: tuple[RunState, ...] = ("rolled_back", "rolled_back_partly")


def has_entry() -> ColumnElement[bool]:
    """Whether a run has an entry."""
    return exists().where(tables.entries.c.run == tables.runs.c.id)


def last_applied(connection: Connection, host: str) -> tuple[int, Run] | None:
    """See ``Runs.last_applied``."""
    # One query for each state: an index has the runs of one state in their order.
    found = (connection.execute(_QUERY, {"host": host, "state": state}).one_or_none() for state in APPLIED)
    last = max((row for row in found if row is not None), key=lambda row: row.seq, default=None)
    return None if last is None else (last.seq, Run(*last[: len(RUN)]))


def _query() -> Select[Any]:
    """The query for the parameters ``host`` and ``state``."""
    runs, later = tables.runs.c, tables.runs.alias().c
    host: BindParameter[str] = bindparam("host")
    rolled_back = exists().where(
        later.host == host, later.kind == "rollback", later.state.in_(ROLLED_BACK), later.seq > runs.seq
    )
    counts = and_(or_(has_entry(), ~rolled_back), ~runs.origin.startswith(PROBE_ORIGIN))
    query = select(*RUN, runs.seq).where(runs.host == host, runs.kind == "apply", runs.state == bindparam("state"))
    return query.where(counts).order_by(runs.seq.desc()).limit(1)


_QUERY = _query()
"""Built once: to build it takes eight times as long as to execute it, and each reconcile asks several times."""
