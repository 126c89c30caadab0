"""RunRecorder stores a run's news and audit records centrally; RunCopier fetches runs from the agents' journals."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from pinner.agent.protocol import Agent
from pinner.model.errors import NotFound, PinnerError, StoreUnavailable
from pinner.model.policy import Expected
from pinner.model.run.agent_audit import ALL_RUNS, SignedHead, change_text, head_text
from pinner.model.run.audit import RECOVERY, AuditAction, AuditEvent
from pinner.model.run.journal import Entry, Run, is_final
from pinner.service.hosts.hosts import Hosts
from pinner.service.runs.audit_heads import AuditHeads
from pinner.store.runs.runs import Runs

LOG = logging.getLogger(__name__)

READ_SECONDS = 1.0
BEGIN_GRACE = timedelta(seconds=5)
"""The age at which a run that the agent does not know is closed there: its process may be about to begin it."""


def _is_undone(run: str, journaled: Callable[[str], Run]) -> bool:
    try:
        return journaled(run).state in ("rolled_back", "rolled_back_partly")
    except NotFound:
        return False


class RunRecorder:
    def __init__(
        self,
        run: Run,
        request_id: str,
        runs: Runs,
        now: Callable[[], datetime],
        changed: Callable[[str, Iterable[Entry]], None] = lambda *_: None,
    ) -> None:
        self._run = run
        self._request_id = request_id
        self._runs = runs
        self._now = now
        self._changed = changed
        self._guard = threading.Lock()
        self._known = self._stored()
        self._due: dict[int, Entry] = {}
        self._in_doubt = False
        """A write that the database did not confirm may be stored."""

    def open(self, policy: Expected = None) -> None:
        """Raises StoreUnavailable, and PreconditionFailed where the host's policy lacks the revision ``policy``, if
        given: then do not begin the run."""
        self._runs.add(self._run, events=[self.request_event("started")], policy=policy)

    def note(self, entry: Entry) -> None:
        with self._guard:
            self._due[entry.seq] = entry

    def flush(self) -> None:
        with self._guard:
            self._flush()

    def flush_for_reader(self) -> None:
        """Waits at most READ_SECONDS for another thread that stores. Raises StoreUnavailable."""
        if self._guard.acquire(timeout=READ_SECONDS):
            try:
                self._flush()
            finally:
                self._guard.release()

    def _flush(self) -> None:
        due = self._unstored(self._due.values())
        if due:
            self._in_doubt = True
            if self._runs.save(due, self._changes(due), running=self._run.id):
                self._count(due)
            self._in_doubt = False
            self._known |= self._due
        self._due.clear()

    def undone_later_runs(self, journaled: Callable[[str], Run]) -> list[str]:
        """The runs opened after this rollback of all runs that it undid; else none. ``journaled`` reads a run from the
        agent's journal, and raises its errors."""
        if not self._run.undoes_all:
            return []
        return [run for run in self._runs.opened_later(self._run) if _is_undone(run, journaled)]

    def close(
        self, run: Run, entries: Iterable[Entry], head: SignedHead | None, undone_later: Collection[str] = ()
    ) -> None:
        """Store the run's end with all entries, unless another process did. No ``head``: the agent cannot report it."""
        with self._guard:
            latest = {entry.seq: entry for entry in (*self._due.values(), *entries)}
            self._due.clear()
            recovered = [replace(self._event(AuditAction.RUN_RECOVER, run.id, "", "", run.recovered), actor=RECOVERY)]
            last = [
                *(recovered if run.recovered else ()),
                self._event(AuditAction.RUN_END, run.id, "", head_text(head) if head else "", run.result),
            ]
            due = self._unstored(latest.values())
            every = [latest[seq] for seq in sorted(latest)]
            if self._runs.end(run, every, last, head, changed=self._changes, also=undone_later):
                self._count(due)

    def refuse(self, run: Run, code: str) -> None:
        self._runs.end(run, events=[self.request_event(f"refused: {code}")])

    def request_event(self, result: str) -> AuditEvent:
        run = self._run
        if run.kind == "rollback":
            return self._event(AuditAction.RUN_ROLLBACK, f"{run.id} of {run.undoes or ALL_RUNS}", "", "", result)
        action = AuditAction.RUN_RELEASE if run.kind == "release" else AuditAction.RUN_APPLY
        return self._event(action, f"{run.id} of {run.plan}", "", run.options, result)

    def _stored(self) -> dict[int, Entry]:
        return {entry.seq: entry for entry in self._runs.entries(self._run.undoes or self._run.id)}

    def _unstored(self, entries: Iterable[Entry]) -> list[Entry]:
        if self._in_doubt:
            self._known = self._stored()
            self._in_doubt = False
        latest = {entry.seq: entry for entry in entries}
        return [entry for seq, entry in sorted(latest.items()) if entry.is_news(self._known.get(seq))]

    def _count(self, entries: Iterable[Entry]) -> None:
        self._changed(self._run.host, [entry for entry in entries if is_final(self._run, entry)])

    def _changes(self, entries: Iterable[Entry]) -> list[AuditEvent]:
        return [self._change(entry) for entry in entries if is_final(self._run, entry)]

    def _change(self, entry: Entry) -> AuditEvent:
        before, after = change_text(entry.change, self._run.kind)
        return self._event(
            AuditAction.RUN_CHANGE, f"{self._run.id}: {entry.change.target}", before, after, entry.result, entry.at
        )

    def _event(
        self, action: AuditAction, subject: str, before: str, after: str, result: str, at: datetime | None = None
    ) -> AuditEvent:
        run = self._run
        return AuditEvent(
            at=at or self._now(),
            actor=run.actor,
            origin=run.origin,
            action=action,
            host=run.host,
            subject=subject,
            before=before,
            after=after,
            result=result,
            request_id=self._request_id,
        )


class RunCopier:
    def __init__(
        self,
        hosts: Hosts,
        heads: AuditHeads,
        runs: Runs,
        now: Callable[[], datetime],
        changed: Callable[[str, Iterable[Entry]], None],
    ) -> None:
        self._hosts = hosts
        self._heads = heads
        self._runs = runs
        self._now = now
        self._changed = changed
        self._recorders: dict[str, RunRecorder] = {}

    def own(self, run: Run, request_id: str) -> RunRecorder:
        recorder = self._recorders[run.id] = self._recorder(run, request_id)
        return recorder

    def forget(self, run: str) -> None:
        del self._recorders[run]

    def _recorder(self, run: Run, request_id: str) -> RunRecorder:
        return RunRecorder(run, request_id, self._runs, self._now, self._changed)

    def updated(self, run: Run) -> Run:
        """The stored run where its news cannot be stored now."""
        try:
            return self.copied(run)
        except StoreUnavailable as error:  # a database may be readable while it cannot be written
            LOG.warning("the progress of run %s is not stored yet: %s", run.id, error)
            return run

    def copied(self, run: Run) -> Run:
        """Stores the end of a run whose process has died, from the agent's journal. Raises StoreUnavailable."""
        if run.state != "running" or run.host not in self._hosts.names():
            return run
        if recorder := self._recorders.get(run.id):
            # Progress is collected for one write, and the next change may take long.
            recorder.flush_for_reader()
            return run
        agent = self._hosts.agent(run.host)
        recorder = self._recorder(run, "")
        try:
            if (journaled := self._journaled(agent, run)).ended_at is None:
                return run
            entries = agent.entries(run.undoes or run.id)
            also = recorder.undone_later_runs(agent.run)
        except PinnerError as error:  # whatever one agent answers, all other runs are shown
            LOG.warning("the agent cannot report the state of run %s now: %s", run.id, error)
            return run
        recorder.close(journaled, entries, self._heads.exchange(run.host), also)
        return self._runs.get(run.id)

    def _journaled(self, agent: Agent, run: Run) -> Run:
        """A run that the agent has not begun is closed there, so that no late call begins it."""
        try:
            return agent.run(run.id)
        except NotFound:
            is_young = abs(self._now() - run.started_at) < BEGIN_GRACE
            return run if is_young else agent.close_run(run)
