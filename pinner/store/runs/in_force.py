"""The changes that no rollback has undone, of all runs of a host together."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, assert_never

import sqlalchemy as sa

from pinner.model.change import (
    AffinityChange,
    Change,
    MemoryChange,
    MetadataChange,
    PartPin,
    StateChange,
    TargetKey,
    ThreadKey,
)
from pinner.model.kinds import DEFINED
from pinner.model.page import batches
from pinner.model.run.journal import EARLIER_BOOT, Damaged, Entry, EntryState, Run
from pinner.model.states import State
from pinner.store.database import tables
from pinner.store.runs.entries import REPEATED, readable

_RUNS, _ENTRIES = tables.runs.c, tables.entries.c
IN_FORCE: tuple[EntryState, ...] = ("intent", "done", "stuck")
_NEVER_MADE = ("running", "undone", "rolled_back", "failed")
"""A rollback of all runs leaves a run without entries in these states."""
_RESTORED = ("undone", "rolled_back", "rolled_back_partly")
_LASTING = sa.and_(_RUNS.persist, _ENTRIES.kind.in_(DEFINED))
_NOT_REPEATED = dict.fromkeys(REPEATED, "")
BATCH = 1000


class _Closing(NamedTuple):
    run: str
    seq: int
    key: TargetKey
    is_earlier: bool


def of_host(host: str) -> Any:
    """The entries that a rollback of all runs undoes, also the definition of a guest that is gone."""
    kept = sa.and_(_LASTING, _ENTRIES.state == "gone", _RUNS.state.not_in(_RESTORED))
    return sa.and_(
        _RUNS.id == _ENTRIES.run,
        _RUNS.host == host,
        _RUNS.kind != "rollback",
        sa.or_(_ENTRIES.state.in_(IN_FORCE), kept),
    )


def placed_processes(connection: sa.Connection) -> dict[ThreadKey, int]:
    """It needs SQLite."""
    started = json_value(_ENTRIES.change, "$.target.part").label("started")
    since = sa.func.min(json_value(_ENTRIES.lineage, "$.since"))
    query = sa.select(_ENTRIES.owner, started, since).where(sa.text(tables.PROCESSES_IN_FORCE))
    rows = connection.execute(query.group_by(_ENTRIES.owner, started))
    return {ThreadKey(int(owner), began): first or 0 for owner, began, first in rows if began is not None}


def json_value(
    column: sa.ColumnElement[str], path: str, damaged: sa.ColumnElement[str] | None = None
) -> sa.ColumnElement[Any]:
    """Where the text is damaged, ``damaged`` or NULL. json_extract alone would fail for all rows."""
    return sa.case((sa.func.json_valid(column) == 1, sa.func.json_extract(column, path)), else_=damaged)


def later(connection: sa.Connection, run: str, owners: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Changes (JSON) of later applies to these owners or the host itself, latest first, with run id and number."""
    began = sa.select(_RUNS.seq).where(_RUNS.id == run).scalar_subquery()
    query = (
        sa.select(_RUNS.id, _RUNS.seq, _ENTRIES.change)
        .join(tables.entries, _RUNS.id == _ENTRIES.run)
        .where(_RUNS.kind == "apply", _RUNS.seq > began, _ENTRIES.state.in_(IN_FORCE))
        .where(sa.or_(_ENTRIES.owner.in_(sorted(owners)), _ENTRIES.kind == ""))
        .order_by(_RUNS.seq.desc(), _ENTRIES.seq)
    )
    return (tuple(row) for row in connection.execute(query))


def result_of(change: Change) -> State | int | tuple[PartPin, ...]:
    """Of memory the node, of metadata the pins."""
    match change:
        case MemoryChange():
            return change.node
        case MetadataChange():
            return change.pins
        case AffinityChange() | StateChange():
            return change.after
    assert_never(change)


def close_all(connection: sa.Connection, run: Run, own: Iterable[Entry], also: Collection[str] = ()) -> None:
    """Store the outcome of a rollback of all runs in each entry and run that it undid, and delete the recorded
    placement. Changes of an earlier boot that no definition has are gone; what could not be undone is in the other
    runs' entries. A run opened later keeps its state, unless it is one of ``also``."""
    began = connection.execute(sa.select(_RUNS.seq).where(_RUNS.id == run.id)).scalar_one()
    before = sa.or_(_RUNS.seq < began, _RUNS.id.in_(also))
    lost = _close_entries(connection, run, {entry.change.target.key: entry for entry in own}, before)
    _close_runs(connection, run.host, lost, before)
    last = connection.execute(sa.select(sa.func.max(_RUNS.seq)).where(_RUNS.host == run.host, before)).scalar() or began
    placements = sa.delete(tables.placements).filter_by(host=run.host)
    connection.execute(placements.where(tables.placements.c.run_seq <= max(last, began)))
    whole = sa.select(_RUNS.id).where(_RUNS.host == run.host, _RUNS.kind == "rollback", _RUNS.undoes == "")
    own_entries = sa.and_(_ENTRIES.run.in_(whole), sa.or_(_ENTRIES.mask != "", _ENTRIES.owner != ""))
    connection.execute(sa.update(tables.entries).where(own_entries).values(_NOT_REPEATED))


def _close_entries(
    connection: sa.Connection, run: Run, outcomes: Mapping[TargetKey, Entry], before: sa.ColumnElement[bool]
) -> dict[str, bool]:
    # Where the present boot is not known, no boot counts as an earlier one.
    earlier = sa.and_(_RUNS.boot.not_in(("", run.boot)), sa.literal(run.boot) != "", ~_LASTING)
    query = sa.select(_RUNS.id, _ENTRIES.seq, _ENTRIES.change, earlier.label("earlier"))
    query = query.where(of_host(run.host), before).order_by(_RUNS.seq, _ENTRIES.seq)
    closed: list[dict[str, object]] = []
    lost: dict[str, bool] = {}
    for change in list(readable(connection, query, _closing)):
        name, seq, state, error = _end_of(change, outcomes, run.boot)
        lost[name] = lost.get(name, False) or state not in ("undone", "gone")
        if state not in ("", "done"):
            closed.append({"_run": name, "_seq": seq, "_state": state, "_error": error})
    _update_entries(connection, closed, run.ended_at or run.started_at)
    return lost


def _closing(row: sa.Row[Any]) -> _Closing:
    try:
        target = json.loads(row.change)["target"]
        return _Closing(row.id, row.seq, TargetKey(target["kind"], target["owner"], target["part"]), row.earlier)
    except (LookupError, TypeError) as error:
        raise ValueError(f"the change has no target: {error}") from None


def _end_of(change: _Closing | Damaged, outcomes: Mapping[TargetKey, Entry], boot: str) -> tuple[str, int, str, str]:
    """No state where the rollback has none."""
    if isinstance(change, Damaged):
        return change.run, change.seq, *(("gone", EARLIER_BOOT) if change.has_ended(boot) else ("stuck", change.why))
    outcome = outcomes.get(change.key)
    if change.is_earlier and (outcome is None or change.key.kind not in DEFINED):
        # The threads have ended. Of a saved guest, the pins may still be in its image, which has an outcome.
        return change.run, change.seq, "gone", EARLIER_BOOT
    return change.run, change.seq, *((outcome.state, outcome.error) if outcome else ("", ""))


def _close_runs(connection: sa.Connection, host: str, lost: Mapping[str, bool], before: sa.ColumnElement[bool]) -> None:
    began = sa.and_(_RUNS.host == host, _RUNS.kind != "rollback", _RUNS.state.not_in(_NEVER_MADE), before)
    others = dict.fromkeys(connection.execute(sa.select(_RUNS.id).where(began)).scalars(), False)
    states = [
        {"_run": name, "_state": "rolled_back_partly" if in_place else "rolled_back"}
        for name, in_place in (others | dict(lost)).items()
    ]
    if states:
        named = sa.update(tables.runs).where(_RUNS.id == sa.bindparam("_run"))
        connection.execute(named.values(state=sa.bindparam("_state")), states)


def _update_entries(connection: sa.Connection, closed: list[dict[str, object]], at: datetime) -> None:
    if not closed:
        return
    same = sa.and_(_ENTRIES.run == sa.bindparam("_run"), _ENTRIES.seq == sa.bindparam("_seq"))
    changed = sa.update(tables.entries).where(same)
    changed = changed.values(state=sa.bindparam("_state"), error=sa.bindparam("_error"), at=at)
    for part in batches(closed, BATCH):
        connection.execute(changed, part)
