"""The agent in this process: the embedded default, and what an agent's server serves."""

from collections.abc import Callable
from datetime import datetime

from pinner.agent.protocol import Progress
from pinner.apply import executor
from pinner.apply.ports import Host, Journal
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot


class LocalAgent:
    """Satisfies Agent with a host and a journal of this machine."""

    def __init__(
        self, take: Callable[[float], Snapshot], host: Host, journal: Journal, now: Callable[[], datetime]
    ) -> None:
        """``take`` makes a snapshot from two samples that lie so many seconds apart."""
        self._take = take
        self._host = host
        self._journal = journal
        self._now = now

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """See Agent."""
        return self._take(sample_seconds)

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """See Agent."""
        return executor.apply(plan, run, self._host, self._journal, self._now, progress)

    def rollback(self, run: Run, progress: Progress) -> Run:
        """See Agent."""
        return executor.rollback(run, self._host, self._journal, self._now, progress)

    def run(self, run: str) -> Run:
        """See Agent."""
        return self._journal.run(run)

    def entries(self, run: str) -> tuple[Entry, ...]:
        """See Agent."""
        return self._journal.entries(run)
