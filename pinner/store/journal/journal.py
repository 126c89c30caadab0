"""Its queries need SQLite: indices with conditions, and functions for JSON."""

import fcntl
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from sqlalchemy import URL, Column, Engine, Select, and_, func, select, text, update
from sqlalchemy.exc import IntegrityError

from pinner.model.change import Target, ThreadKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import HostBusy, NotFound, RunConflict, StoreUnavailable
from pinner.model.kinds import DEFINED
from pinner.model.run import agent_audit
from pinner.model.run.agent_audit import AgentEvent
from pinner.model.run.journal import EARLIER_BOOT, Damaged, Entry, InForce, RecordedPins, Run
from pinner.store.audit.agent_chain import AgentChain
from pinner.store.database import schema, tables
from pinner.store.database.engine import connect, reading, write
from pinner.store.database.probe import require_room
from pinner.store.retention import Needed, Retention
from pinner.store.runs import in_force
from pinner.store.runs.in_force import json_value
from pinner.store.runs.runs import Runs

FILE = "journal.sqlite"

MAX_NOTES = 256
"""Notes that wait for the next durable write: the journal has each prior mask, and a recovery looks at the host."""

_LOCK_SECONDS = 0.1
"""How long ``begin`` waits for the lock, because ``interrupted`` takes it for a moment."""

_RUN_ID_SECONDS = 2.0
"""How long ``begin`` waits until the process with the lock has stored its run."""


class StoredJournal:
    """Satisfies apply's Journal with a database file and a lock file in one folder. A run locks the file (flock) from
    ``begin`` to ``end``: a ``running`` run with a free lock was interrupted. POSIX locks would not exclude two journals
    of one process."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreUnavailable."""
        self._engine = connect(URL.create("sqlite", database=str(folder / FILE)))
        schema.ensure(self._engine)
        self._runs = Runs(self._engine)
        self.chain = AgentChain(self._engine)
        """A run's record is stored in one transaction with its state."""
        self._lock_path = folder / "lock"
        self._lock: IO[bytes] | None = None
        self._locking_run: Run | None = None
        self._notes: dict[tuple[str, int], Entry] = {}
        self._noted: list[AgentEvent] = []
        """Each state in which an entry was noted is a record."""
        self._guard = threading.Lock()

    def require_room(self) -> None:
        require_room(self._lock_path.parent)

    def close(self) -> None:
        """A run that has not ended counts as interrupted."""
        self._unlock()
        self._engine.dispose()

    def begin(self, run: Run) -> None:
        self._wait_for_lock(run.host)
        try:
            if interrupted := self._runs.running():
                raise HostBusy(run.host, interrupted[0].id)
            self._add(run, agent_audit.begun(run))
            self._locking_run = run
        except BaseException:
            self._unlock()
            raise

    def close_unbegun(self, run: Run) -> None:
        self._add(run, *agent_audit.ended(run))

    def end_earlier_boots(self, boot: str, at: datetime, keeps: Callable[[str], bool]) -> int:
        return end_earlier_boots(self._engine, boot, at, keeps)

    def intend(self, *entries: Entry, reported: Collection[Entry] = ()) -> None:
        with self._guard:
            self._report(*reported)
        self._flush(*entries)

    def note(self, entry: Entry, *, again: bool = False) -> None:
        with self._guard:
            self._notes[entry.run, entry.seq] = entry
            if not again:
                self._report(entry)
            full = len(self._notes) >= MAX_NOTES
        if full:
            self._flush()

    def end(self, run: Run, corrected: Collection[Entry] = ()) -> None:
        with self._guard:
            events = [*self._noted, *agent_audit.ended(run)]
            self._runs.end(run, self._notes.values(), events, corrected=corrected)
            self._notes.clear()
            self._noted.clear()
        self._unlock()

    def leave(self, run: Run) -> None:
        if self._locking_run is not None and self._locking_run.id == run.id:
            self._unlock()

    def interrupted(self) -> Run | None:
        if not self._runs.running() or not self._try_lock():
            return None
        try:
            # Read again under the lock: the run's process may have ended it in the meantime.
            running = self._runs.running()
        except BaseException:
            self._unlock()
            raise
        if not running:
            self._unlock()
            return None
        self._locking_run = running[-1]
        return running[-1]

    def run(self, run: str) -> Run:
        return self._runs.get(run)

    def in_effect(self) -> tuple[Run, ...]:
        return self._runs.in_effect()

    def entries(self, run: str) -> tuple[Entry, ...]:
        self._flush()
        return self._runs.entries(run)

    def readable_entries(self, run: str) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
        self._flush()
        return self._runs.readable_entries(run)

    def placed(self) -> tuple[CpuSet, ...]:
        """Includes the masks of interrupted and stuck changes: the process may have them."""
        return tuple(sorted(map(CpuSet.parse, self._distinct("mask", tables.PROCESSES_IN_FORCE)), key=str))

    def purge(self, before: datetime, is_kept: Callable[[str], bool], needed: Needed = lambda _: ()) -> int:
        self._flush()
        return Retention(self._engine).purge_runs(before, is_kept, needed)

    def moved_processes(self) -> frozenset[str]:
        return frozenset(self._distinct("name", tables.PROCESSES_IN_FORCE))

    def allocated(self) -> CpuSet:
        return union(map(CpuSet.parse, self._distinct("mask", tables.MASKS_IN_FORCE)))

    def placed_processes(self) -> dict[ThreadKey, int]:
        self._flush()
        with reading(self._engine) as connection:
            return in_force.placed_processes(connection)

    def changed_later(self, run: str, most: int) -> tuple[tuple[Run, Target], ...]:
        self._flush()
        return self._runs.changed_later(run, most)

    def in_force(self, host: str, after: str = "") -> Iterator[InForce | Damaged]:
        self._flush()
        return self._runs.in_force(host, after)

    def recorded_pins(self, guests: Collection[str]) -> RecordedPins:
        self._flush()
        return recorded_pins(self._engine, guests)

    def changes_of(self, guest: str) -> tuple[Entry, ...]:
        self._flush()
        return self._runs.recorded_changes(None, guest)

    def _report(self, *entries: Entry) -> None:
        if (run := self._locking_run) is not None:
            self._noted += [agent_audit.changed(run, entry) for entry in entries]

    def _add(self, run: Run, *events: AgentEvent) -> None:
        try:
            self._runs.add(run, events=events)
        except IntegrityError:
            with suppress(NotFound):
                # Another process stored a run of this id after the caller had searched for it.
                raise RunConflict(run.id, self._runs.get(run.id).state, "the journal has a run of this id") from None
            raise

    def _distinct(self, column: str, condition: str) -> tuple[str, ...]:
        self._flush()
        with reading(self._engine) as connection:
            return tuple(connection.execute(distinct_values(tables.entries.c[column], condition)).scalars())

    def _flush(self, *entries: Entry) -> None:
        with self._guard:
            due = self._notes | {(entry.run, entry.seq): entry for entry in entries}
            if due:
                self._runs.save(due.values(), self._noted)
            self._notes.clear()
            self._noted.clear()

    def _wait_for_lock(self, host: str) -> None:
        began = time.monotonic()
        while not self._try_lock():
            waited = time.monotonic() - began
            if waited > _LOCK_SECONDS and (running := self._runs.running()):
                raise HostBusy(host, running[0].id)
            if waited > _RUN_ID_SECONDS:
                raise HostBusy(host, "(id not stored yet)")
            time.sleep(0.005)

    def _try_lock(self) -> bool:
        try:
            file = self._lock_path.open("ab")
        except OSError as error:
            raise StoreUnavailable(str(self._lock_path), error.strerror or str(error)) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._lock = file
        return True

    def _unlock(self) -> None:
        # The fields are cleared before the lock is released: after that, another thread may set them for its own run.
        lock, self._lock, self._locking_run = self._lock, None, None
        if lock is not None:
            lock.close()


def end_earlier_boots(engine: Engine, boot: str, at: datetime, keeps: Callable[[str], bool]) -> int:
    runs, table = tables.runs.c, tables.entries.c
    ended = and_(runs.boot != "", runs.boot != boot, runs.state != "running")
    with reading(engine) as connection:
        if connection.execute(select(runs.seq).where(ended).limit(1)).first() is None:
            return 0
    due = table.run.in_(select(runs.id).where(ended)) & table.state.in_(("intent", "done", "stuck"))
    # The journal is always SQLite. Changes of metadata have no owner in its column.
    owner = json_value(table.change, "$.target.owner", damaged=table.owner)
    with reading(engine) as connection:
        guests = connection.execute(select(owner).where(due, table.kind == "metadata").distinct()).scalars().all()
    kept = [guest for guest in guests if keeps(guest)]
    persisted = table.run.in_(select(runs.id).where(ended, runs.persist))
    # The guest of damaged metadata is not known, so it may be a saved one that keeps its pins.
    lasts = persisted | owner.in_(kept) | ((table.kind == "metadata") & (owner == ""))
    due &= ~(table.kind.in_(DEFINED) & lasts)
    change = update(tables.entries).where(due).values(state="gone", at=at, error=EARLIER_BOOT)
    return int(write(engine, lambda connection: connection.execute(change).rowcount))


def distinct_values(column: Column[Any], condition: str) -> Select[tuple[Any]]:
    """The distinct values of a text column, in the rows that meet a condition (a loose index scan): one search in the
    index for each, where SELECT DISTINCT would read all of it (https://www.sqlite.org/lang_with.html). An index on the
    column must have the same condition (CREATE INDEX ... WHERE), to the letter."""
    smallest = select(func.min(column).label("value")).where(text(condition))
    distinct = smallest.where(column >= "").cte("distinct_values", recursive=True)
    following = smallest.where(column > distinct.c.value).scalar_subquery()
    distinct = distinct.union_all(select(following).where(distinct.c.value.is_not(None)))
    return select(distinct.c.value).where(distinct.c.value.is_not(None))


_PLACED = text(
    "WITH of_guests AS (SELECT run, owner, kind, iif(json_valid(change), change, '{}') AS change "
    "FROM json_each(:guests) AS guest JOIN entries ON owner = guest.value WHERE state NOT IN ('failed', 'undone')), "
    "named AS (SELECT run, iif(json_valid(change), change, '{}') AS change FROM entries "
    "WHERE kind = 'metadata' AND run IN (SELECT run FROM of_guests)), "
    "by_hand AS (SELECT run, json_extract(change, '$.target.owner') FROM named "
    "WHERE json_extract(change, '$.by_hand')) "
    "SELECT DISTINCT owner, kind, json_extract(change, '$.target.part'), (run, owner) IN by_hand FROM of_guests"
)
"""Parts of guests, and whether a run by hand has placed each; not where the change of the metadata is damaged."""
_MOVED = text(
    "WITH of_guests AS (SELECT run, owner, kind, state, mask, iif(json_valid(change), change, '{}') AS change "
    "FROM json_each(:guests) AS guest JOIN entries ON owner = guest.value WHERE state IN ('failed', 'undone')), "
    "named AS (SELECT run, iif(json_valid(change), change, '{}') AS change FROM entries "
    "WHERE kind = 'metadata' AND run IN (SELECT run FROM of_guests)) "
    "SELECT DISTINCT owner, kind, part FROM (SELECT run, owner, kind, json_extract(change, '$.target.part') AS part "
    "FROM of_guests WHERE EXISTS (SELECT 1 FROM json_each(of_guests.change, '$.before') AS thread "
    "WHERE json_extract(thread.value, '$.cpus') <> of_guests.mask) "
    "AND (state = 'undone' OR EXISTS (SELECT 1 FROM entries AS other "
    "WHERE other.run = of_guests.run AND other.owner = of_guests.owner AND other.state <> 'failed')) "
    "EXCEPT SELECT run, json_extract(change, '$.target.owner'), json_extract(pin.value, '$.kind'), "
    "json_extract(pin.value, '$.part') FROM named, json_each(change, '$.former') AS pin)"
)
"""Without the parts that a run did not move, and those that were pinned before: their operators have these pins back.
Of an unreadable guest, all changes have failed, and none was tried. A damaged change moved no part."""
_PERSISTED = text(
    "SELECT DISTINCT entries.owner, entries.kind, "
    "json_extract(iif(json_valid(entries.change), entries.change, '{}'), '$.target.part'), entries.mask "
    "FROM json_each(:guests) AS guest JOIN entries ON entries.owner = guest.value JOIN runs ON runs.id = entries.run "
    "WHERE runs.persist AND (entries.state IN ('intent', 'done', 'stuck') "
    "OR entries.state = 'gone' AND runs.state NOT IN ('undone', 'rolled_back', 'rolled_back_partly'))"
)
"""An entry whose guest is gone may have written the definition, until the run is rolled back."""


def recorded_pins(engine: Engine, guests: Collection[str]) -> RecordedPins:
    """By guest UUID."""
    parameters = {"guests": json.dumps(sorted(guests))}
    with reading(engine) as connection:
        active = connection.execute(_PLACED, parameters).all()
        placed = frozenset(guest for guest, _, _, by_hand in active if not by_hand)
        moved = connection.execute(_MOVED, {"guests": json.dumps(sorted({*guests} - placed))})
        parts = {(guest, kind, part) for guest, kind, part, _ in active if guest not in placed}
        rows = connection.execute(_PERSISTED, parameters) if active else ()
        persisted = frozenset((owner, kind, part, CpuSet.parse(mask)) for owner, kind, part, mask in rows)
        return RecordedPins(placed, persisted, frozenset({*parts, *map(tuple, moved)}))
