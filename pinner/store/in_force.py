"""The changes that no rollback has undone, of all runs of a host together."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, text, update

from pinner.model.change import Change, MemoryChange, State, TargetKey, ThreadKey
from pinner.model.journal import Entry, EntryState, Run
from pinner.store import tables

_RUNS, _ENTRIES = tables.runs.c, tables.entries.c
IN_FORCE: tuple[EntryState, ...] = ("intent", "done", "stuck")
_NEVER_MADE = ("running", "undone", "rolled_back", "failed")
"""The states of a run without entries that a rollback of all runs does not change."""
BATCH = 1000


def of_host(host: str) -> Any:
    """The condition of the entries that a rollback of all runs undoes. The definition of a guest that is gone is in
    force, too."""
    kept = and_(_RUNS.persist, _ENTRIES.state == "gone")
    return and_(
        _RUNS.id == _ENTRIES.run,
        _RUNS.host == host,
        _RUNS.kind != "rollback",
        or_(_ENTRIES.state.in_(IN_FORCE), kept),
    )


def placed_processes(connection: Connection) -> frozenset[ThreadKey]:
    """See apply's Journal. Only for SQLite."""
    started = func.json_extract(_ENTRIES.change, "$.target.part")
    rows = connection.execute(select(_ENTRIES.owner, started).where(text(tables.PROCESSES_IN_FORCE)).distinct())
    return frozenset(ThreadKey(int(owner), started) for owner, started in rows)


def later(connection: Connection, run: str, owners: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The changes (JSON) that later applies made to these owners or to the host itself, latest first, each with the id
    of its run."""
    began = select(_RUNS.seq).where(_RUNS.id == run).scalar_subquery()
    query = (
        select(_RUNS.id, _ENTRIES.change)
        .join(tables.entries, _RUNS.id == _ENTRIES.run)
        .where(_RUNS.kind == "apply", _RUNS.seq > began, _ENTRIES.state.in_(IN_FORCE))
        .where(or_(_ENTRIES.owner.in_(sorted(owners)), _ENTRIES.kind == ""))
        .order_by(_RUNS.seq.desc(), _ENTRIES.seq)
    )
    return (tuple(row) for row in connection.execute(query))


def result_of(change: Change) -> State | int:
    """The affinity or state that the change gives to its target; of a change of memory, the node."""
    return change.node if isinstance(change, MemoryChange) else change.after


def close_all(connection: Connection, run: Run, own: Iterable[Entry]) -> None:
    """Store the outcome of a rollback of all runs as the state of every entry and run that it undid.

    The host has no recorded placement any more.
    """
    outcomes = {entry.change.target.key: entry for entry in own}
    query = select(_RUNS.id, _ENTRIES.seq, _ENTRIES.change).where(of_host(run.host))
    closed: list[dict[str, object]] = []
    runs: dict[str, bool] = {}
    for name, seq, change in connection.execute(query).all():
        outcome = outcomes.get(_key(json.loads(change)["target"]))
        lost = outcome is None or outcome.state not in ("undone", "gone")
        runs[name] = runs.get(name, False) or lost
        if outcome is not None and outcome.state != "done":
            closed.append({"_run": name, "_seq": seq, "_state": outcome.state, "_error": outcome.error})
    _update_entries(connection, closed, run.ended_at or run.started_at)
    made = and_(_RUNS.host == run.host, _RUNS.kind != "rollback", _RUNS.state.not_in(_NEVER_MADE))
    others = dict.fromkeys(connection.execute(select(_RUNS.id).where(made)).scalars(), False)
    states = [
        {"_run": name, "_state": "rolled_back_partly" if lost else "rolled_back"}
        for name, lost in (others | runs).items()
    ]
    if states:
        named = update(tables.runs).where(_RUNS.id == bindparam("_run"))
        connection.execute(named.values(state=bindparam("_state")), states)
    connection.execute(delete(tables.placements).filter_by(host=run.host))


def _update_entries(connection: Connection, closed: list[dict[str, object]], at: datetime) -> None:
    if not closed:
        return
    same = and_(_ENTRIES.run == bindparam("_run"), _ENTRIES.seq == bindparam("_seq"))
    changed = update(tables.entries).where(same)
    changed = changed.values(state=bindparam("_state"), error=bindparam("_error"), at=at)
    for start in range(0, len(closed), BATCH):
        connection.execute(changed, closed[start : start + BATCH])


def _key(target: Mapping[str, Any]) -> TargetKey:
    return TargetKey(target["kind"], target["owner"], target["part"])
