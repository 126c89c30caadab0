"""The agent in this process: the embedded default, and what an agent's server serves."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.protocol import Progress
from pinner.apply import executor
from pinner.apply.ports import Host, Journal
from pinner.apply.recover import Policy, recover
from pinner.model.drift import Drift
from pinner.model.event import HostEvent
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot

LOG = logging.getLogger(__name__)


class Machine(Host, Protocol):
    """A host, with what no apply needs."""

    def knows(self, guest: str) -> bool:
        """See Agent."""

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """See Agent."""

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """See Agent."""


class LocalAgent:
    """Satisfies Agent with a host and a journal of this machine."""

    def __init__(
        self,
        take: Callable[[float], Snapshot],
        host: Machine,
        journal: Journal,
        now: Callable[[], datetime],
        event_queue: HostEventQueue,
        policy: Policy = "back",
    ) -> None:
        """``take`` makes a snapshot from two samples that lie so many seconds apart; ``policy`` is recovery's."""
        self._take = take
        self._host = host
        self._journal = journal
        self._now = now
        self._event_queue = event_queue
        self._policy = policy

    def recover(self) -> None:
        """Settle the run that a process left open, if there is one: when the agent starts, and before it is asked for
        another one."""
        if run := recover(self._host, self._journal, self._policy, self._now):
            LOG.warning("run %s was %s (%s)", run.id, run.recovered, run.state)

    def close(self) -> None:
        """Let everybody go who waits for news."""
        self._event_queue.close()

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """See Agent."""
        return self._take(sample_seconds)

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """See Agent."""
        self.recover()
        return executor.apply(plan, run, self._host, self._journal, self._now, progress)

    def rollback(self, run: Run, progress: Progress) -> Run:
        """See Agent."""
        self.recover()
        return executor.rollback(run, self._host, self._journal, self._now, progress)

    def run(self, run: str) -> Run:
        """See Agent."""
        found = self._journal.run(run)
        if found.state == "running":
            self.recover()
            found = self._journal.run(run)
        return found

    def entries(self, run: str) -> tuple[Entry, ...]:
        """See Agent."""
        return self._journal.entries(run)

    def host_events(self, after: int, timeout: float, names: tuple[str, ...]) -> tuple[HostEvent, ...]:
        """See Agent."""
        return self._event_queue.since(after, timeout, names)

    def knows(self, guest: str) -> bool:
        """See Agent."""
        return self._host.knows(guest)

    def publish_guest_event(self, guest: str, words: str) -> None:
        """See Agent."""
        self._event_queue.publish("guest-event", guest, words)

    def policy_set(self) -> None:
        """See Agent."""
        self._event_queue.publish("policy-set", "")

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """See Agent."""
        return self._host.explain(drifts)

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """See Agent."""
        self._host.set_excluded(guest, excluded=excluded)
