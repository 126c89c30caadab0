"""The agent's journal: what was done to this host, beside the agent, so that it can be undone without any server."""

import fcntl
import threading
import time
from pathlib import Path
from typing import IO

from sqlalchemy import JSON, URL, select, type_coerce

from pinner.model.cpuset import CpuSet
from pinner.model.errors import HostBusy, StoreUnavailable
from pinner.model.journal import Entry, Run
from pinner.store import schema, tables
from pinner.store.engine import connect, reading
from pinner.store.runs import Runs

NOTES = 64
"""How many notes may wait for the next durable write."""

_PATIENCE = 0.1
"""Seconds that ``begin`` waits for a lock: ``interrupted`` holds it for a moment, too."""

_NAMELESS = 2.0
"""Seconds that ``begin`` waits for the holder to write its name down."""


class Journal:
    """Satisfies apply's Journal with a database file and a lock file in one folder.

    A run holds the lock from ``begin`` to ``end``; the kernel lets it go when the process dies, so a run that is
    ``running`` under a free lock was interrupted. The lock is flock's, which (unlike POSIX record locks, and fasteners
    that is made of them) also keeps two journals of one process apart.
    """

    def __init__(self, folder: Path) -> None:
        """Open the journal in ``folder``, or begin one. Raises StoreUnavailable."""
        self._engine = connect(URL.create("sqlite", database=str(folder / "journal.sqlite")))
        schema.ensure(self._engine)
        self._runs = Runs(self._engine)
        self._lock_path = folder / "lock"
        self._lock: IO[bytes] | None = None
        self._holder = ""
        """The run that the lock is held for."""
        self._notes: dict[tuple[str, int], Entry] = {}
        self._guard = threading.Lock()

    def close(self) -> None:
        """Close the files. A run that is still open was interrupted."""
        self._let_go()
        self._engine.dispose()

    def begin(self, run: Run, entries: tuple[Entry, ...]) -> None:
        """See apply's Journal."""
        self._hold(run.host)
        try:
            if interrupted := self._runs.running():
                raise HostBusy(run.host, interrupted[0].id)
            self._runs.add(run, entries)
            self._holder = run.id
        except BaseException:
            self._let_go()
            raise

    def intend(self, *entries: Entry) -> None:
        """See apply's Journal."""
        self._flush(*entries)

    def note(self, entry: Entry) -> None:
        """See apply's Journal."""
        with self._guard:
            self._notes[entry.run, entry.seq] = entry
            full = len(self._notes) >= NOTES
        if full:
            self._flush()

    def end(self, run: Run) -> None:
        """See apply's Journal."""
        with self._guard:
            self._runs.end(run, self._notes.values())
            self._notes.clear()
        self._let_go()

    def leave(self, run: Run) -> None:
        """See apply's Journal."""
        if self._holder == run.id:
            self._let_go()

    def interrupted(self) -> Run | None:
        """See apply's Journal."""
        if not self._runs.running() or not self._try_lock():
            return None
        try:
            # Again under the lock: its process may have ended it just now.
            left = self._runs.running()
        except BaseException:
            self._let_go()
            raise
        if not left:
            self._let_go()
            return None
        self._holder = left[-1].id
        return left[-1]

    def run(self, run: str) -> Run:
        """See apply's Journal."""
        return self._runs.get(run)

    def entries(self, run: str) -> tuple[Entry, ...]:
        """See apply's Journal."""
        self._flush()
        return self._runs.entries(run)

    def placed(self) -> tuple[CpuSet, ...]:
        """See apply's Journal. What may have been given counts: an interrupted change, and one that is stuck."""
        table = tables.entries.c
        change = type_coerce(table.change, JSON)
        query = (
            select(change["after"].as_string())
            .where(change["target"]["kind"].as_string() == "process", table.state.in_(("intent", "done", "stuck")))
            .distinct()
        )
        self._flush()
        with reading(self._engine) as connection:
            return tuple(sorted((CpuSet.parse(mask) for mask in connection.execute(query).scalars()), key=str))

    def _flush(self, *entries: Entry) -> None:
        with self._guard:
            due = self._notes | {(entry.run, entry.seq): entry for entry in entries}
            if due:
                self._runs.save(due.values())
            self._notes.clear()

    def _hold(self, host: str) -> None:
        """Take the lock. Raises HostBusy that names the holder."""
        began = time.monotonic()
        while not self._try_lock():
            waited = time.monotonic() - began
            if waited > _PATIENCE and (holders := self._runs.running()):
                raise HostBusy(host, holders[0].id)
            if waited > _NAMELESS:
                raise HostBusy(host, "that has not told its name yet")
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

    def _let_go(self) -> None:
        # Forgotten before it is free: from then on another thread may note its own here.
        lock, self._lock, self._holder = self._lock, None, ""
        if lock is not None:
            lock.close()
