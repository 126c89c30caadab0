"""RunCopier: copies the news of runs from the agents' journals to the database."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from pinner.agent.protocol import Agent
from pinner.model.errors import NotFound, PinnerError, StoreUnavailable
from pinner.model.run.journal import Entry, Run
from pinner.service.hosts.hosts import Hosts
from pinner.service.runs.audit_heads import AuditHeads
from pinner.service.runs.run_recorder import RunRecorder
from pinner.store.runs.runs import Runs

LOG = logging.getLogger(__name__)

BEGIN_GRACE = timedelta(seconds=5)
"""The age at which a run that the agent does not know is closed. Only a courtesy to a process that is about to begin
it: the agent refuses the begin of a closed run."""


class RunCopier:
    """Several threads may use it."""

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
        """Of a run that this process carries out from now on, until ``forget``."""
        recorder = self._recorders[run.id] = self._recorder(run, request_id)
        return recorder

    def forget(self, run: str) -> None:
        del self._recorders[run]

    def _recorder(self, run: Run, request_id: str) -> RunRecorder:
        return RunRecorder(run, request_id, self._runs, self._now, self._changed)

    def updated(self, run: Run) -> Run:
        """As it is stored where its news cannot be stored now."""
        try:
            return self.copied(run)
        except StoreUnavailable as error:  # a database may be readable while it cannot be written
            LOG.warning("the progress of run %s is not stored yet: %s", run.id, error)
            return run

    def copied(self, run: Run) -> Run:
        """Once its news are stored: the agent's journal has the end of a run whose process has died. Raises
        StoreUnavailable."""
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
        """A run that the agent has not begun is closed there, so that no call that is still on its way begins it."""
        try:
            return agent.run(run.id)
        except NotFound:
            is_young = abs(self._now() - run.started_at) < BEGIN_GRACE
            return run if is_young else agent.close_run(run)
