import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from pinner.agent.protocol import Agent
from pinner.model.errors import HostUnreachable, PinnerError, RunConflict, StoreUnavailable, Unanswered
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Entry, Run, is_final
from pinner.service.runs.audit_heads import AuditHeads
from pinner.service.runs.run_recorder import RunRecorder

LOG = logging.getLogger(__name__)

FLUSH_SECONDS = 0.1
"""The time between two writes of progress; the agent's journal gets every change at once."""


class RunExecution:
    def __init__(
        self,
        run: Run,
        plan: Plan | None,
        recorder: RunRecorder,
        agent: Agent,
        heads: AuditHeads,
        now: Callable[[], datetime],
        notify: Callable[[], None],
    ) -> None:
        """``plan`` is made by an apply or release; None: a rollback. ``notify`` is called when the store has new
        progress."""
        self._run = run
        self._plan = plan
        self._recorder = recorder
        self._agent = agent
        self._heads = heads
        self._now = now
        self._notify = notify
        self._begun = threading.Event()
        self._refusal: Exception | None = None
        self._flushed = -FLUSH_SECONDS

    def wait_begun(self) -> None:
        """Returns also when the agent has ended the run. Raises its refusal."""
        self._begun.wait()
        if self._refusal is not None:
            raise self._refusal

    def carry_out(self, await_turn: Callable[[], None]) -> None:
        """Begins after ``await_turn``, and stores the run's end. Never raises."""
        try:
            try:
                await_turn()
                if self._plan is None:
                    end = partial(self._store_end, self._agent.rollback(self._run, self._progress))
                else:
                    end = partial(self._store_end, self._agent.apply(self._plan, self._run, self._progress))
            except Exception as error:
                if not isinstance(error, PinnerError):
                    LOG.exception("run %s failed", self._run.id)
                end = partial(self._fail, error)
            end()
        except StoreUnavailable:
            LOG.exception("the end of run %s is only in the agent's journal; the next request copies it", self._run.id)
        finally:
            self._begun.set()
            self._notify()

    def _store_end(self, ended: Run) -> None:
        """An agent that cannot report the entries now is asked later."""
        try:
            entries, also = self._entries(), self._recorder.undone_later_runs(self._agent.run)
        except PinnerError as error:
            self._log_read_later(error)
        else:
            self._recorder.close(ended, entries, self._heads.exchange(self._run.host), also)

    def _fail(self, error: Exception) -> None:
        begun = self._begun.is_set()
        if not begun:
            self._refusal = error
        known = isinstance(error, RunConflict) and error.details.get("run") == self._run.id
        if known or (begun and not isinstance(error, (HostUnreachable, StoreUnavailable))):
            self._end_as_journaled(error)
        elif begun or isinstance(error, Unanswered):
            self._log_read_later(error)
        else:
            # An agent that answers before the begin has refused the run, and does not begin it any more.
            failed = replace(self._run, state="failed", ended_at=self._now(), error=str(error))
            self._recorder.refuse(failed, error.code if isinstance(error, PinnerError) else PinnerError.code)

    def _end_as_journaled(self, error: Exception) -> None:
        """Only the journal knows which changes were made."""
        try:
            journaled = self._agent.run(self._run.id)
            if journaled.ended_at is not None:
                self._store_end(journaled)
                return
        except PinnerError as unknown:
            error = unknown
        self._log_read_later(error)

    def _entries(self) -> tuple[Entry, ...]:
        return self._agent.entries(self._run.undoes or self._run.id)

    def _log_read_later(self, error: Exception) -> None:
        LOG.error("the end of run %s is read later from the agent's journal: %s", self._run.id, error)

    def _progress(self, entry: Entry, _total: int) -> None:
        """Never raises: a lost database must not stop an apply half-way."""
        try:
            if self._begun.is_set():
                self._recorder.note(entry)
            else:  # the first message says only that the run has begun: the state of its entry is no report of the run
                self._begin()
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._flushed = time.monotonic()
                self._recorder.flush()
                self._notify()
        except PinnerError as error:
            LOG.warning("the progress of run %s is not stored yet: %s", self._run.id, error)

    def _begin(self) -> None:
        try:
            for entry in self._entries():
                # The agent reports each final entry in its order.
                if not is_final(self._run, entry):
                    self._recorder.note(entry)
        finally:
            self._begun.set()
